"""The REST API: documents over HTTP, refusals in one shape, permissions, pages, and a true description."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from controlplane.core import users
from controlplane.core.kinds import KINDS
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from controlplane.objectives.models import InferenceObjective
from tests.support.controlplane import (
    ADMIN,
    EXAMPLES,
    OPERATOR,
    POOL,
    REWRITE,
    client,
    example,
    objective,
    prepare,
)

pytestmark = pytest.mark.django_db

OBJECTIVES = "/api/v1/objectives"


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_an_object_is_made_read_changed_and_removed() -> None:
    api = client()
    made = api.post(OBJECTIVES, objective(), format="json")
    assert (made.status_code, made.json(), made["ETag"]) == (201, objective(version=1), '"1"')
    one = f"{OBJECTIVES}/interactive"
    changed = api.put(one, objective(priority=7), format="json", HTTP_IF_MATCH='"1"')
    assert (changed.status_code, changed.json()) == (200, objective(version=2, priority=7))
    assert api.get(one).json() == objective(version=2, priority=7)
    assert api.delete(one, HTTP_IF_MATCH='"2"').status_code == 204
    assert code(api.get(one)) == (404, "not_found")


def test_a_change_must_name_the_version_it_is_meant_for() -> None:
    api = client()
    api.post(OBJECTIVES, objective(), format="json")
    one = f"{OBJECTIVES}/interactive"
    assert code(api.put(one, objective(priority=7), format="json")) == (428, "version_required")
    assert code(api.delete(one)) == (428, "version_required")
    stale = api.put(one, objective(priority=7, version=9), format="json")
    assert code(stale) == (412, "stale")
    assert (stale.json()["expected"], stale.json()["found"]) == (9, 1)
    assert stale.json()["current"] == objective(version=1)
    assert code(api.delete(one, HTTP_IF_MATCH="*")) == (422, "invalid")
    assert api.get(one).json() == objective(version=1)


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"{", "application/json", (400, "bad_request")),
        (b"\xff", "application/json", (400, "bad_request")),
        (b"NaN", "application/json", (400, "bad_request")),
        (b"[" * 100_000, "application/json", (400, "bad_request")),
        (b"a: [", "application/yaml", (400, "bad_request")),
        (b"[]", "application/json", (422, "invalid")),
        (b"", "application/json", (422, "invalid")),
    ],
)
def test_bodies_that_make_no_sense_are_refused(body: bytes, kind: str, expected: tuple[int, str]) -> None:
    assert code(client().post(OBJECTIVES, body, content_type=kind)) == expected
    assert not InferenceObjective.objects.exists()


def test_yaml_is_as_good_as_json() -> None:
    text = yaml.safe_dump_all([objective(), REWRITE])
    answer = client().post("/api/v1/apply", text, content_type="application/yaml")
    assert [step["action"] for step in answer.json()["steps"]] == ["create", "create"]
    exported = client(Role.VIEWER).get("/api/v1/export?format=yaml").content
    assert list(yaml.safe_load_all(exported)) == [objective(), REWRITE]


def test_an_empty_set_is_applied_and_is_nothing() -> None:
    for body in ("", "# nothing yet\n---\n", "[]"):
        answer = client().post("/api/v1/apply", body, content_type="application/yaml")
        assert (answer.status_code, answer.json()) == (200, {"applied": True, "steps": [], "warnings": []})


def test_a_dry_run_plans_and_changes_nothing() -> None:
    answer = client().post("/api/v1/apply?dry_run=true", {"documents": [objective()]}, format="json")
    assert answer.json() == {
        "applied": False,
        "steps": [{"kind": "InferenceObjective", "name": "interactive", "action": "create", "changes": []}],
        "warnings": [
            {
                "path": "documents[0].spec.poolRef.name",
                "message": "there is no InferencePool pool yet; until then this has no effect",
            }
        ],
    }
    assert not InferenceObjective.objects.exists()
    assert code(client(Role.OPERATOR).post("/api/v1/apply?dry_run=maybe", [], format="json")) == (
        422,
        "invalid",
    )


def test_names_that_nobody_has_yet_are_a_warning_and_those_in_use_stay() -> None:
    api = client()
    early = api.post(OBJECTIVES, objective(), format="json")
    assert (early.status_code, early["Warning"]) == (
        201,
        '299 - "spec.poolRef.name: there is no InferencePool pool yet; until then this has no effect"',
    )
    applied = api.post("/api/v1/apply", [REWRITE, POOL], format="json").json()
    assert applied["warnings"] == []
    late = api.put(f"{OBJECTIVES}/interactive", objective(priority=3, version=1), format="json")
    assert (late.status_code, "Warning" in late) == (200, False)
    refused = api.delete("/api/v1/pools/pool", HTTP_IF_MATCH='"1"')
    assert (refused.status_code, refused.json()["message"]) == (
        409,
        "InferencePool pool is named by InferenceObjective interactive; delete these first",
    )
    assert api.get("/api/v1/pools/pool").status_code == 200
    assert api.delete(f"{OBJECTIVES}/interactive", HTTP_IF_MATCH='"2"').status_code == 204
    assert api.delete("/api/v1/modelrewrites/chat", HTTP_IF_MATCH='"1"').status_code == 204
    assert api.delete("/api/v1/pools/pool", HTTP_IF_MATCH='"1"').status_code == 204


def test_lists_come_in_pages_filtered_and_ordered() -> None:
    api = client()
    for number in range(5):
        api.post(OBJECTIVES, objective(f"o{number}", poolRef={"name": f"p{number % 2}"}), format="json")
    page = api.get(f"{OBJECTIVES}?pool=p0&order=-name&limit=2&offset=1").json()
    assert [item["metadata"]["name"] for item in page["items"]] == ["o2", "o0"]
    assert (page["total"], page["limit"], page["offset"]) == (3, 2, 1)
    wrong = api.get(f"{OBJECTIVES}?limit=0&order=size&colour=red")
    assert code(wrong) == (422, "invalid")
    assert [detail["path"] for detail in wrong.json()["details"]] == ["colour", "limit", "order"]
    assert code(api.get(f"{OBJECTIVES}?order=")) == (422, "invalid")


@pytest.mark.parametrize("plural", [service.plural for service in KINDS.all()])
def test_a_list_costs_the_same_few_queries_however_long_it_is(plural: str) -> None:
    api = client()
    (service,) = (one for one in KINDS.all() if one.plural == plural)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get(f"/api/v1/{plural}").status_code == 200
        return len(captured)

    def add(name: str) -> None:
        service.create(OPERATOR, example(service.kind, name))

    prepare(service.kind)
    add("first")
    queries()  # notes the token's use
    before = queries()
    for number in range(10):
        add(f"o{number}")
    assert queries() == before <= 2


MATRIX = {
    Role.WORKER: {"list": 403, "create": 403, "apply": 403, "audit": 403},
    Role.VIEWER: {"list": 200, "create": 403, "apply": 403, "audit": 403},
    Role.OPERATOR: {"list": 200, "create": 201, "apply": 200, "audit": 200},
    Role.ADMIN: {"list": 200, "create": 201, "apply": 200, "audit": 200},
}


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("role", list(Role))
def test_each_role_may_do_what_it_may_and_no_more(role: Role, kind: str) -> None:
    api = client(role)
    service = KINDS.of(kind)
    assert service is not None
    prepare(kind)
    document = example(kind)
    done = {
        "list": api.get(f"/api/v1/{service.plural}").status_code,
        "create": api.post(f"/api/v1/{service.plural}", document, format="json").status_code,
        "apply": api.post("/api/v1/apply", [document], format="json").status_code,
        "audit": api.get("/api/v1/audit").status_code,
    }
    assert done == MATRIX[role]
    assert service.rows(OPERATOR).count() == (0 if role in {Role.WORKER, Role.VIEWER} else 1)


def test_without_a_good_token_nothing_is_told() -> None:
    nobody = APIClient()
    for header in ({}, {"HTTP_AUTHORIZATION": "Bearer pmt_x_y"}, {"HTTP_AUTHORIZATION": "Basic YTpi"}):
        answer = nobody.get(OBJECTIVES, **header)
        assert code(answer) == (401, "unauthenticated")
        assert answer["WWW-Authenticate"] == "Bearer"


def test_the_audit_log_tells_who_did_what_through_which_door() -> None:
    api = client(Role.OPERATOR)
    api.post(OBJECTIVES, objective(), format="json", HTTP_X_POINTSMAN_CHANNEL="cli")
    (entry,) = api.get("/api/v1/audit?kind=InferenceObjective").json()["items"]
    assert (entry["actor"], entry["channel"], entry["action"]) == ("a-operator", "cli", "create")
    assert entry["after"] == objective(version=1)
    assert AuditEntry.objects.get(pk=entry["id"]).before is None


def test_who_am_i() -> None:
    assert client(Role.VIEWER).get("/api/v1/whoami").json() == {
        "name": "a-viewer",
        "role": "viewer",
        "channel": "api",
    }


def test_addresses_that_are_none_answer_in_the_same_shape() -> None:
    assert code(APIClient().get("/api/v1/nowhere")) == (404, "not_found")
    assert code(client().patch(OBJECTIVES)) == (405, "method_not_allowed")


def test_the_description_is_complete_and_warns_of_nothing() -> None:
    out = StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", stdout=out)
    assert '"openapi": "3.1.1"' in out.getvalue()


def test_migrations_are_those_of_the_models() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_pages_of_rows_of_one_value_show_each_row_once() -> None:
    names = [f"same-{index}" for index in range(7)]
    for name in names:
        client().post(OBJECTIVES, objective(name), format="json")
    InferenceObjective.objects.update(created_at="2026-01-01T00:00:00Z")
    for order in ("created", "-created"):
        with CaptureQueriesContext(connection) as captured:
            pages = [client().get(f"{OBJECTIVES}?order={order}&limit=2&offset={at}") for at in (0, 2, 4, 6)]
        found = [item["metadata"]["name"] for page in pages for item in page.json()["items"]]
        assert found == (names if order == "created" else names[::-1])
        column = '"created_at" DESC, "id" DESC' if order == "-created" else '"created_at" ASC, "id" ASC'
        ordered = [query["sql"].split("ORDER BY ")[1] for query in captured if "ORDER BY" in query["sql"]]
        assert any(sql.replace('"objectives_inferenceobjective".', "").startswith(column) for sql in ordered)


@pytest.mark.parametrize("where", [OBJECTIVES, "/api/v1/apply", "/api/v1/users"])
def test_a_key_that_is_repeated_is_refused_and_not_dropped(where: str) -> None:
    body = b'{"name": "a", "spec": {"priority": 1, "priority": 2}}'
    answer = client(Role.ADMIN).post(where, body, content_type="application/json")
    assert code(answer) == (400, "bad_request")
    assert "the key 'priority' occurs twice in one object; remove one" in answer.json()["message"]


@pytest.mark.parametrize(
    ("where", "body", "path", "word"),
    [
        ("/api/v1/users", b'{"name": "ada", "role": "\\ud800"}', "role", "half a character"),
        (OBJECTIVES, b'{"\\ud800": 1}', "\ud800", "is no field"),
        ("/api/v1/users/ada/password", b'{"password": "long enough \\ud800"}', "password", "no text"),
        ("/api/v1/users/ada/password", b'{"password": "long enough \\u0000"}', "password", "no text"),
    ],
)
def test_half_a_character_is_refused_and_may_be_repeated(
    where: str, body: bytes, path: str, word: str
) -> None:
    users.put(ADMIN, "ada", Role.VIEWER)
    answer = client(Role.ADMIN).post(where, body, content_type="application/json")
    assert code(answer) == (422, "invalid")
    assert any(part["path"] == path and word in part["message"] for part in answer.json()["details"])
