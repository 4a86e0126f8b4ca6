"""Virtual keys over HTTP: what an answer shows once, and the actions documents cannot do."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from rest_framework.test import APIClient

from controlplane.core.documents import apply
from controlplane.core.roles import Role
from controlplane.tenancy.models import VirtualKey
from tests.support.controlplane import OPERATOR, TENANT, VIRTUAL_KEY, client

pytestmark = pytest.mark.django_db

KEYS = "/api/v1/virtualkeys"
ONE = f"{KEYS}/laptop"


@pytest.fixture
def api() -> APIClient:
    apply(OPERATOR, [TENANT])
    return client(Role.OPERATOR)


def made(api: APIClient) -> str:
    answer = api.post(KEYS, VIRTUAL_KEY, format="json")
    assert (answer.status_code, answer["ETag"], answer["Cache-Control"]) == (201, '"1"', "no-store")
    text = answer.json()["status"]["key"]
    assert isinstance(text, str)
    return text


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_key_is_in_the_answer_that_makes_it_and_in_no_other(api: APIClient) -> None:
    text = made(api)
    for path in (ONE, KEYS, "/api/v1/export", "/api/v1/audit"):
        assert text not in api.get(path).content.decode()
    found = api.get(f"{KEYS}?tenant=research&prefix={text[:18]}").json()
    assert [item["metadata"]["name"] for item in found["items"]] == ["laptop"]


def test_rotation_and_revocation_name_the_version_they_are_meant_for(api: APIClient) -> None:
    first = made(api)
    assert code(api.post(f"{ONE}/rotate", {}, format="json")) == (428, "version_required")
    assert code(api.post(f"{ONE}/rotate", {}, format="json", HTTP_IF_MATCH='"7"')) == (412, "stale")
    rotated = api.post(f"{ONE}/rotate", {"grace": "90m"}, format="json", HTTP_IF_MATCH='"1"')
    second = rotated.json()["status"]["key"]
    assert (rotated.status_code, rotated["ETag"], second != first) == (200, '"2"', True)
    assert code(api.post(f"{ONE}/rotate", format="json", HTTP_IF_MATCH='"2"')) == (409, "conflict")
    assert code(api.post(f"{ONE}/revoke")) == (428, "version_required")
    revoked = api.post(f"{ONE}/revoke", HTTP_IF_MATCH='"2"').json()
    assert revoked["status"]["state"] == "revoked"
    assert code(api.post(f"{KEYS}/other/revoke", HTTP_IF_MATCH='"2"')) == (404, "not_found")


@pytest.mark.parametrize("body", [{"grace": 5}, {"grace": "-1h"}, {"grace": "91h91"}, {"gracee": "1h"}, [1]])
def test_a_rotation_that_makes_no_sense_changes_nothing(api: APIClient, body: Any) -> None:
    made(api)
    assert code(api.post(f"{ONE}/rotate", body, format="json", HTTP_IF_MATCH='"1"')) == (422, "invalid")
    assert api.get(ONE)["ETag"] == '"1"'


def test_gateways_report_uses(api: APIClient) -> None:
    digest = hashlib.sha256(made(api).encode()).hexdigest()
    report = {"uses": [{"keyDigest": digest, "at": "2026-01-01T00:00:00Z"}]}
    worker = client(Role.WORKER)
    assert worker.post("/api/v1/virtualkeyuses", report, format="json").json() == {"noted": 1}
    assert worker.post("/api/v1/virtualkeyuses", report, format="json").json() == {"noted": 0}
    assert api.get(ONE).json()["status"]["lastUsedAt"] == "2026-01-01T00:00:00+00:00"
    many = {"uses": report["uses"] * 1001}
    assert code(worker.post("/api/v1/virtualkeyuses", many, format="json")) == (422, "invalid")
    for wrong in ({"at": "0001-01-01T00:00:00+10:00"}, {"extra": 1}):
        odd = {"uses": [{**report["uses"][0], **wrong}]}
        assert code(worker.post("/api/v1/virtualkeyuses", odd, format="json")) == (422, "invalid")
    assert code(api.post("/api/v1/virtualkeyuses", report, format="json")) == (
        403,
        "forbidden",
    )
    assert VirtualKey.objects.get().version == 1
