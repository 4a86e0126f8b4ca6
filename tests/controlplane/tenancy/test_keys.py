"""Virtual keys: shown once, kept as digests, rotated with grace, revoked for ever."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.documents import apply, export
from controlplane.core.errors import ConflictError, ForbiddenError, InvalidError, StaleError
from controlplane.core.models import AuditEntry
from controlplane.tenancy.models import VirtualKey
from controlplane.tenancy.services import MAX_GRACE, TenantService, Use, VirtualKeyService
from tests.support.controlplane import OPERATOR, TENANT, VIEWER, VIRTUAL_KEY, WORKER, example

pytestmark = pytest.mark.django_db

SERVICE = VirtualKeyService()
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def tenant() -> None:
    apply(OPERATOR, [TENANT])


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def issued(**spec: Any) -> str:
    """The text of a new key ``laptop``."""
    document = {**VIRTUAL_KEY, "spec": {**VIRTUAL_KEY["spec"], **spec}}
    text = SERVICE.post(OPERATOR, document)[1]["status"]["key"]
    assert isinstance(text, str)
    return text


def shown() -> dict[str, Any]:
    return SERVICE.document(SERVICE.get(VIEWER, "laptop"))


def test_a_new_key_is_shown_once_and_kept_as_its_digest() -> None:
    text = issued()
    assert text.startswith("sk-pm-")
    assert shown()["spec"] == {
        **VIRTUAL_KEY["spec"],
        "keyDigest": digest(text),
        "keyPrefix": text[: len("sk-pm-") + 12],
    }
    assert shown()["status"] == {"state": "active", "lastUsedAt": None}
    kept = json.dumps([*VirtualKey.objects.values(), *AuditEntry.objects.values()], default=str)
    assert text not in kept
    assert text[len("sk-pm-") + 12 + 1 :] not in kept  # the secret part, which may have dashes itself


def test_a_document_makes_a_key_from_a_digest_alone() -> None:
    with pytest.raises(InvalidError) as caught:
        apply(OPERATOR, [VIRTUAL_KEY])
    (detail,) = caught.value.details
    assert detail.path == "documents[0].spec.keyDigest"
    assert "'pointsman key create'" in detail.message
    assert not VirtualKey.objects.exists()
    apply(OPERATOR, [example("VirtualKey", "imported")])
    assert VirtualKey.objects.get().digest == digest("imported")
    assert SERVICE.post(OPERATOR, example("VirtualKey", "other"))[1]["status"] == {
        "state": "active",
        "lastUsedAt": None,
    }


def test_a_document_without_the_digest_leaves_the_key_as_it_is() -> None:
    text = issued()
    (step,) = apply(OPERATOR, [VIRTUAL_KEY]).steps
    assert step.action == "unchanged"
    changed = {**VIRTUAL_KEY, "spec": {"tenant": "research"}}
    (step,) = apply(OPERATOR, [changed]).steps
    assert {change.path for change in step.changes} == {
        "spec.allowedModels",
        "spec.limits",
    }
    assert shown()["spec"]["keyDigest"] == digest(text)


def test_keys_move_with_an_export() -> None:
    issued()
    SERVICE.rotate(OPERATOR, "laptop", HOUR)
    documents = export(VIEWER)
    assert {step.action for step in apply(OPERATOR, documents, dry_run=True).steps} == {"unchanged"}
    SERVICE.delete(OPERATOR, "laptop")
    TenantService().delete(OPERATOR, "research")
    assert {step.action for step in apply(OPERATOR, documents).steps} == {"create"}
    assert export(VIEWER) == documents


def test_after_a_rotation_the_old_key_holds_for_the_grace() -> None:
    old = issued()
    before = timezone.now()
    new = SERVICE.rotate(OPERATOR, "laptop", HOUR, version=1).text
    spec = SERVICE._one(VirtualKey.objects.all(), "laptop").spec
    assert (spec["keyDigest"], spec["previous"]["keyDigest"]) == (digest(new), digest(old))
    until = timezone.datetime.fromisoformat(spec["previous"]["validUntil"])
    assert before + HOUR <= until <= timezone.now() + HOUR
    assert shown()["metadata"]["resourceVersion"] == "2"
    assert AuditEntry.objects.first().action == "rotate"


def test_a_second_rotation_within_the_grace_does_not_end_the_first_key_unnoticed() -> None:
    issued()
    second = SERVICE.rotate(OPERATOR, "laptop", HOUR).text
    with pytest.raises(ConflictError, match="holds until"):
        SERVICE.rotate(OPERATOR, "laptop", HOUR)
    assert shown()["spec"]["keyDigest"] == digest(second)
    third = SERVICE.rotate(OPERATOR, "laptop", timedelta()).text
    assert (shown()["spec"]["keyDigest"], "previous" in shown()["spec"]) == (digest(third), False)


@pytest.mark.parametrize("grace", [timedelta(seconds=-1), MAX_GRACE + timedelta(seconds=1)])
def test_grace_has_bounds(grace: timedelta) -> None:
    text = issued()
    with pytest.raises(InvalidError, match="grace: must be from 0 to 90 days"):
        SERVICE.rotate(OPERATOR, "laptop", grace)
    assert shown()["spec"]["keyDigest"] == digest(text)


def test_a_revoked_key_never_comes_back() -> None:
    issued()
    old = export(VIEWER)
    SERVICE.revoke(OPERATOR, "laptop", version=1)
    revoked = shown()["spec"]["revokedAt"]
    assert shown()["status"]["state"] == "revoked"
    SERVICE.revoke(OPERATOR, "laptop")
    apply(OPERATOR, old)
    assert shown()["spec"]["revokedAt"] == revoked
    assert shown()["metadata"]["resourceVersion"] == "2"
    with pytest.raises(ConflictError, match="is revoked; make a new key"):
        SERVICE.rotate(OPERATOR, "laptop", HOUR)
    later = example("VirtualKey", "laptop")
    later["spec"]["revokedAt"] = "2099-01-01T00:00:00Z"
    with pytest.raises(InvalidError, match="and stays; make a new key"):
        SERVICE.update(OPERATOR, "laptop", later)


def test_a_key_ends_with_its_time_and_none_is_made_that_has_ended() -> None:
    with pytest.raises(InvalidError, match="would never hold"):
        issued(expiresAt="2020-01-01T00:00:00Z")
    assert not VirtualKey.objects.exists()
    issued(expiresAt="2099-01-01T00:00:00+01:00")
    assert shown()["status"]["state"] == "active"
    over = {**VIRTUAL_KEY, "spec": {"tenant": "research", "expiresAt": "2020-01-01T00:00:00Z"}}
    SERVICE.update(OPERATOR, "laptop", over)
    assert shown()["status"]["state"] == "expired"
    with pytest.raises(ConflictError, match="is expired"):
        SERVICE.rotate(OPERATOR, "laptop", HOUR)


def test_a_digest_is_one_keys_also_while_it_is_the_previous_one() -> None:
    text = issued()
    SERVICE.rotate(OPERATOR, "laptop", HOUR)
    other = example("VirtualKey", "other")
    other["spec"]["keyDigest"] = digest(text)
    with pytest.raises(InvalidError, match="is another key's"):
        SERVICE.create(OPERATOR, other)
    assert VirtualKey.objects.count() == 1


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"keyDigest": "sk-pm-secret"}, "spec.keyDigest: expected str matching regex"),
        ({"expiresAt": "2030-01-01T00:00:00"}, "spec.expiresAt: expected datetime with a timezone component"),
        ({"expiresAt": "9999-12-31T23:59:59-20:00"}, "spec.expiresAt: must be in the years 2000 to 2999"),
        ({"keyPrefix": "sk"}, "spec.keyDigest: is missing"),
        ({"tenant": "nobody"}, "spec.tenant: there is no Tenant nobody"),
    ],
)
def test_mistakes_are_told_and_never_repeat_what_might_be_a_key(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidError) as caught:
        issued(**spec)
    (detail,) = caught.value.details
    assert f"{detail.path}: {detail.message}".startswith(problem)
    assert "sk-pm-secret" not in json.dumps(caught.value.body())
    assert not VirtualKey.objects.exists()


def test_a_tenant_with_keys_stays() -> None:
    issued()
    with pytest.raises(ConflictError, match="Tenant research is named by VirtualKey laptop"):
        TenantService().delete(OPERATOR, "research")


def test_viewers_and_late_comers_change_no_key() -> None:
    text = issued()
    for refused in (
        lambda: SERVICE.post(VIEWER, example("VirtualKey")),
        lambda: SERVICE.rotate(VIEWER, "laptop", HOUR),
        lambda: SERVICE.revoke(VIEWER, "laptop"),
        lambda: SERVICE.note_uses(VIEWER, []),
        lambda: SERVICE.note_uses(OPERATOR, []),
    ):
        with pytest.raises(ForbiddenError):
            refused()
    with pytest.raises(StaleError):
        SERVICE.rotate(OPERATOR, "laptop", HOUR, version=9)
    with pytest.raises(StaleError):
        SERVICE.revoke(OPERATOR, "laptop", version=9)
    assert shown()["spec"]["keyDigest"] == digest(text)


def test_the_last_use_only_moves_forward_and_not_beyond_now() -> None:
    old = issued()
    new = SERVICE.rotate(OPERATOR, "laptop", HOUR).text
    now = timezone.now()

    def note(text: str, ago: timedelta) -> tuple[int, Any]:
        noted = SERVICE.note_uses(WORKER, [Use(digest(text), now - ago)])
        return noted, VirtualKey.objects.get().last_used_at

    assert note(old, HOUR) == (1, now - HOUR)
    assert note(old, HOUR * 2) == (0, now - HOUR)
    assert note(new, HOUR / 2) == (1, now - HOUR / 2)
    assert note("unknown", HOUR) == (0, now - HOUR / 2)
    assert note(new, -HOUR)[1] <= timezone.now()
    assert shown()["metadata"]["resourceVersion"] == "2"
