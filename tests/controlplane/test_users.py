"""Users and tokens over the API: told once, audited without secrets, and never without an administrator."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from controlplane.core import tokens, users
from controlplane.core.errors import ConflictError
from controlplane.core.models import AuditEntry, User
from controlplane.core.roles import Binding, BoundTo, Channel, Role
from tests.support.controlplane import ADMIN, client

pytestmark = pytest.mark.django_db
USERS = "/api/v1/users"


def test_the_last_administrator_with_access_keeps_both() -> None:
    users.put(ADMIN, "ada", Role.ADMIN)
    users.put(ADMIN, "bob", Role.ADMIN)
    users.change(ADMIN, "bob", active=False)
    before = AuditEntry.objects.count()
    for change in ({"active": False}, {"role": Role.OPERATOR}):
        with pytest.raises(ConflictError, match="ada is the last administrator"):
            users.change(ADMIN, "ada", **change)
    assert AuditEntry.objects.count() == before
    users.change(ADMIN, "bob", active=True)
    assert users.change(ADMIN, "ada", role=Role.VIEWER).version == 2


def test_a_disabled_users_token_stops_with_the_change() -> None:
    api, other = client(), APIClient()
    made = api.post(USERS, {"name": "ada", "role": "viewer"}, format="json")
    assert (made.status_code, made.json()["active"], made["ETag"]) == (201, True, '"1"')
    minted = api.post(f"{USERS}/ada/tokens", {"name": "laptop"}, format="json").json()
    other.credentials(HTTP_AUTHORIZATION=f"Bearer {minted['token']}")
    assert other.get("/api/v1/whoami").status_code == 200
    stale = api.patch(f"{USERS}/ada", {"active": False}, format="json", HTTP_IF_MATCH='"7"')
    assert (stale.status_code, stale.json()["found"]) == (412, 1)
    assert api.patch(f"{USERS}/ada", {"active": False}, format="json").status_code == 428
    assert api.patch(f"{USERS}/ada", {"active": False}, format="json", HTTP_IF_MATCH='"1"').status_code == 200
    assert other.get("/api/v1/whoami").status_code == 401
    listed = api.get(f"{USERS}/ada/tokens").json()["items"]
    assert [(row["name"], row["prefix"], "token" in row) for row in listed] == [
        ("laptop", minted["prefix"], False)
    ]
    secret = minted["token"].removeprefix(minted["prefix"])
    assert not [entry for entry in AuditEntry.objects.all() if secret in str(entry.after)]


def test_a_bound_token_is_minted_and_revoked() -> None:
    api = client()
    users.put(ADMIN, "edge", Role.WORKER)
    body = {"name": "envoy", "expiresAt": "2099-01-01T00:00:00Z", "binding": {"gateway": "public"}}
    text = api.post(f"{USERS}/edge/tokens", body, format="json").json()["token"]
    found = tokens.recognise(text, Channel.AUTOMATION)
    assert found is not None
    assert found[1].binding == Binding(BoundTo.GATEWAY, "public")
    body = {"name": "ipp", "binding": {"processor": "by-model", "node": "i-1"}}
    text_of_other = api.post(f"{USERS}/edge/tokens", body, format="json").json()["token"]
    other = tokens.recognise(text_of_other, Channel.AUTOMATION)
    assert other is not None
    assert other[1].binding == Binding(BoundTo.PROCESSOR, "by-model", "i-1")
    two = {"binding": {"pool": "a", "processor": "b"}}
    for wrong, path in (
        ({"binding": {}}, "binding"),
        (two, "binding"),
        ({"expiresAt": "2001-01-01T00:00:00Z"}, "expiresAt"),
    ):
        answer = api.post(f"{USERS}/edge/tokens", {"name": "x", **wrong}, format="json")
        assert (answer.status_code, answer.json()["details"][0]["path"]) == (422, path)
    assert api.delete(f"{USERS}/edge/tokens/envoy").status_code == 204
    assert api.delete(f"{USERS}/edge/tokens/envoy").status_code == 404
    assert tokens.recognise(text, Channel.AUTOMATION) is None


def test_a_password_is_set_or_drawn() -> None:
    api = client()
    users.put(ADMIN, "ada", Role.VIEWER)
    drawn = api.post(f"{USERS}/ada/password", {}, format="json")
    assert User.objects.get(username="ada").check_password(drawn.json()["password"])
    assert api.post(f"{USERS}/ada/password", {"password": "short"}, format="json").status_code == 422
    chosen = api.post(f"{USERS}/ada/password", {"password": "where does this train go"}, format="json")
    assert (chosen.status_code, api.post(f"{USERS}/no/password", {}, format="json").status_code) == (204, 404)
