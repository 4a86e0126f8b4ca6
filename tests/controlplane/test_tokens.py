"""API tokens: shown once, recognised while they hold, taken back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from controlplane.core import tokens, users
from controlplane.core.errors import ConflictError, ForbiddenError, InvalidError, MissingError
from controlplane.core.models import ApiToken, AuditEntry
from controlplane.core.roles import Actor, Binding, BoundTo, Channel, Role
from tests.support.controlplane import ADMIN, OPERATOR

pytestmark = pytest.mark.django_db


def test_a_token_makes_its_bearer_the_user() -> None:
    user = users.put(ADMIN, "ada", Role.OPERATOR)
    issued = tokens.issue(ADMIN, user, "laptop")
    found = tokens.recognise(issued.text, Channel.CLI)
    assert found == (user, Actor("ada", Role.OPERATOR, Channel.CLI, user.pk))
    issued.row.refresh_from_db()
    assert issued.row.last_used_at is not None


@pytest.mark.parametrize("change", ["one character", "no mark", "prefix alone", "too long", "empty"])
def test_what_is_not_quite_a_token_is_nobodys(change: str) -> None:
    text = tokens.issue(ADMIN, users.put(ADMIN, "ada", Role.ADMIN), "laptop").text
    other = "x" if text[-1] != "x" else "y"
    wrong = {
        "one character": text[:-1] + other,
        "no mark": text.removeprefix("pmt_"),
        "prefix alone": text[: len("pmt_") + 12 + 1],
        "too long": text + "x" * 200,
        "empty": "",
    }[change]
    assert tokens.recognise(wrong, Channel.API) is None


def test_only_a_digest_is_kept_and_nothing_secret_is_audited() -> None:
    issued = tokens.issue(ADMIN, users.put(ADMIN, "ada", Role.ADMIN), "laptop")
    secret = issued.text[len("pmt_") + 12 + 1 :]  # may have underscores itself
    kept = [str(value) for row in ApiToken.objects.values() for value in row.values()]
    audited = [str(entry.after) for entry in AuditEntry.objects.all()]
    assert not [text for text in kept + audited if secret in text or issued.text in text]


def test_tokens_end_with_their_time_their_user_and_their_revocation() -> None:
    user = users.put(ADMIN, "ada", Role.ADMIN)
    old = tokens.issue(ADMIN, user, "old", timezone.now() - timedelta(seconds=1))
    held = tokens.issue(ADMIN, user, "held", timezone.now() + timedelta(days=1))
    assert tokens.recognise(old.text, Channel.API) is None
    assert tokens.recognise(held.text, Channel.API) is not None
    user.is_active = False
    user.save()
    assert tokens.recognise(held.text, Channel.API) is None
    user.is_active = True
    user.save()
    tokens.revoke(ADMIN, user, "held")
    assert tokens.recognise(held.text, Channel.API) is None
    with pytest.raises(MissingError):
        tokens.revoke(ADMIN, user, "held")


def test_names_of_a_users_tokens_differ_and_only_administrators_issue_them() -> None:
    user = users.put(ADMIN, "ada", Role.ADMIN)
    tokens.issue(ADMIN, user, "laptop")
    with pytest.raises(ConflictError):
        tokens.issue(ADMIN, user, "laptop")
    with pytest.raises(ForbiddenError):
        tokens.issue(OPERATOR, user, "other")
    assert ApiToken.objects.count() == 1


def test_a_user_is_made_once_and_then_changed() -> None:
    users.put(ADMIN, "ada", Role.VIEWER)
    users.put(ADMIN, "ada", Role.VIEWER)
    assert users.put(ADMIN, "ada", Role.ADMIN).role == Role.ADMIN
    assert [entry.action for entry in AuditEntry.objects.all()] == ["update", "create"]


def test_a_bound_token_makes_its_bearer_bound_and_the_api_refuses_it() -> None:
    user = users.put(ADMIN, "edge", Role.WORKER)
    issued = tokens.issue(ADMIN, user, "envoy", binding=Binding(BoundTo.GATEWAY, "public", "e-1"))
    found = tokens.recognise(issued.text, Channel.AUTOMATION)
    assert found is not None
    assert found[1].binding == Binding(BoundTo.GATEWAY, "public", "e-1")
    entry = AuditEntry.objects.first()
    assert entry is not None
    assert entry.after is not None
    assert entry.after["binding"] == {"gateway": "public", "node": "e-1"}
    api = APIClient()
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {issued.text}")
    for page in ("whoami", "workers/e-1"):
        answer = api.get(f"/api/v1/{page}")
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("role", "binding", "path"),
    [
        (Role.ADMIN, Binding(BoundTo.POOL, "pool"), "binding"),
        (Role.WORKER, Binding(BoundTo.POOL, "No Pool"), "binding.pool"),
        (Role.WORKER, Binding(BoundTo.GATEWAY, ""), "binding.gateway"),
        (Role.WORKER, Binding(BoundTo.GATEWAY, "public", "a b"), "binding.node"),
    ],
)
def test_a_binding_that_means_nothing_is_refused(role: Role, binding: Binding, path: str) -> None:
    user = users.put(ADMIN, "edge", role)
    with pytest.raises(InvalidError) as refused:
        tokens.issue(ADMIN, user, "envoy", binding=binding)
    assert [detail.path for detail in refused.value.details] == [path]
    assert ApiToken.objects.count() == 0
