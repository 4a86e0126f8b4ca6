"""A configuration's life over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.core.roles import Role
from tests.support.controlplane import client, picker_config

pytestmark = pytest.mark.django_db

ALL = "/api/v1/endpointpickerconfigs"
ONE = f"{ALL}/standard"


def post(api: Any, path: str, body: Any = None) -> tuple[int, Any]:
    answer = api.post(path, body, format="json") if body is not None else api.post(path)
    return answer.status_code, answer.json() if answer.content else None


def test_from_a_draft_to_everybody_and_back() -> None:
    api, worker = client(), client(Role.WORKER)
    assert post(api, ALL, picker_config())[0] == 201
    config = "/api/v1/workers/w1/config?pool=pool"
    assert worker.get(config).status_code == 204
    assert post(api, f"{ONE}/publish")[1]["stage"] == "rolling"
    first = worker.get(config)
    assert (first.status_code, first.json()["revision"], first["ETag"]) == (
        200,
        1,
        f'"standard/1/{first.json()["rollout"]}"',
    )
    assert worker.get(config, HTTP_IF_NONE_MATCH=first["ETag"]).status_code == 304
    acks = "/api/v1/workers/w1/acks"
    assert post(worker, acks, {"document": "standard", "revision": 1}) == (204, None)
    assert api.get(f"{ONE}/rollout").json()["stage"] == "complete"

    assert api.put(ONE, picker_config(5), format="json", HTTP_IF_MATCH='"1"').status_code == 200
    plan = api.get(f"{ONE}/plan?canary=1").json()
    assert plan == {
        "document": "standard",
        "revision": 2,
        "active": 1,
        "changes": [
            {"path": "schedulingProfiles[default].plugins[queue-scorer].weight", "before": 2, "after": 5}
        ],
        "warnings": [],
        "pools": ["pool"],
        "workers": [{"worker": "w1", "pool": "pool", "applied": 1, "first": True}],
    }
    status, rollout = post(
        api, f"{ONE}/publish", {"canary": "50%", "guard": {"maxErrorShare": 0.1}, "comment": "why"}
    )
    assert (status, rollout["stage"], rollout["canary"], rollout["guard"], rollout["comment"]) == (
        201,
        "canary",
        "50%",
        {"maxErrorShare": 0.1, "minRequests": 20},
        "why",
    )
    guarded = worker.get(config, HTTP_IF_NONE_MATCH=first["ETag"])
    assert guarded.json()["isGuarded"] is True
    assert guarded["ETag"] == f'"standard/2/{guarded.json()["rollout"]}/guarded"'
    refused = {"document": "standard", "revision": 2, "problems": [{"path": "a.b", "message": "no"}]}
    assert post(worker, acks, refused) == (204, None)
    shown = api.get(f"{ONE}/rollout").json()
    assert (shown["stage"], shown["reason"]) == ("halted", "w1 refuses it: a.b: no")
    assert (shown["active"], shown["workersPresent"], shown["workersApplied"]) == (1, 1, 0)
    assert shown["workers"][0]["problems"] == [{"path": "a.b", "message": "no"}]
    assert worker.get(config).json()["revision"] == 1

    status, back = post(api, f"{ONE}/rollback")
    assert (status, back["revision"], back["stage"]) == (201, 3, "rolling")
    revisions = api.get(f"{ONE}/revisions").json()
    assert [(r["number"], r["parent"], r["comment"]) for r in revisions["items"]] == [
        (3, 1, "back to revision 1"),
        (2, 1, ""),
        (1, None, ""),
    ]
    assert api.get(f"{ONE}/diff?from=1&to=3").json()["changes"] == []
    assert len(api.get(f"{ONE}/diff?from=2&to=3").json()["changes"]) == 1
    assert api.get(f"{ONE}/revisions/2").json()["content"]["kind"] == "EndpointPickerConfig"
    assert [r["stage"] for r in api.get(f"{ONE}/rollouts").json()["items"]] == [
        "rolling",
        "rolled_back",
        "complete",
    ]


def test_validating_keeps_nothing() -> None:
    api = client(Role.VIEWER)
    status, verdict = post(api, f"{ONE}/validate", picker_config())
    assert (status, verdict["revision"], len(verdict["digest"])) == (200, None, 64)
    wrong = picker_config()
    wrong["plugins"][0]["type"] = "nonsense"
    status, refusal = post(api, f"{ONE}/validate", wrong)
    assert (status, refusal["details"][0]["path"]) == (422, "plugins[0]")
    assert post(api, f"{ALL}/other/validate", picker_config())[0] == 422
    assert api.get(ALL).json()["total"] == 0


@pytest.mark.parametrize(
    ("path", "body", "paths"),
    [
        ("publish", {"canary": "all", "x": 1}, ["x"]),
        ("publish", {"canary": "all"}, ["canary"]),
        ("publish", {"revision": 0, "guard": {"maxErrorShare": 2}}, ["revision", "guard.maxErrorShare"]),
        ("publish", [1], [""]),
        ("halt", {"reason": "x" * 1001}, ["reason"]),
        ("rollback", {"revision": "one"}, ["revision"]),
    ],
)
def test_orders_that_make_no_sense_are_refused(path: str, body: Any, paths: list[str]) -> None:
    api = client()
    post(api, ALL, picker_config())
    status, refusal = post(api, f"{ONE}/{path}", body)
    assert (status, [detail["path"] for detail in refusal["details"]]) == (422, paths)
    assert api.get(f"{ONE}/rollout").status_code == 404


@pytest.mark.parametrize("path", ["plan?revision=x", "plan?canary=x", "diff?from=1", "diff?from=1&to=0"])
def test_questions_that_make_no_sense_are_refused(path: str) -> None:
    api = client()
    post(api, ALL, picker_config())
    assert api.get(f"{ONE}/{path}").status_code == 422


def test_texts_that_no_database_takes_are_refused() -> None:
    api, worker = client(), client(Role.WORKER)
    post(api, ALL, picker_config())
    for text in ("a\x00", "\ud800"):
        raw = json.dumps({"document": text, "revision": 1})
        answer = worker.post("/api/v1/workers/w1/acks", raw, content_type="application/json")
        assert (answer.status_code, answer.json()["details"][0]["path"]) == (422, "document")
        raw = json.dumps({"reason": text})
        assert api.post(f"{ONE}/halt", raw, content_type="application/json").status_code == 422
    for path in ("", "/plan", "/rollout"):
        assert api.get(f"{ALL}/%00{path}").status_code == 404
    assert post(api, f"{ALL}/%00/publish")[0] == 404


def test_what_is_not_there_is_told() -> None:
    api = client()
    for path in ("plan", "revisions", "rollouts", "rollout", "diff?from=1&to=2", "revisions/1"):
        assert api.get(f"{ONE}/{path}").status_code == 404, path
    for order in ("publish", "promote", "halt", "rollback"):
        assert post(api, f"{ONE}/{order}")[0] == 404, order
    post(api, ALL, picker_config())
    for order in ("promote", "halt", "rollback"):
        assert post(api, f"{ONE}/{order}")[0] == 409, order
    assert api.get(f"{ONE}/diff?from=1&to=2").status_code == 404


def test_each_role_does_its_own() -> None:
    post(client(), ALL, picker_config())
    orders = {"publish": 201, "promote": 409, "halt": 200, "rollback": 409}
    reads = ("plan", "revisions", "rollouts")
    ack = {"document": "standard", "revision": 1}
    expected = {
        Role.WORKER: ({403}, {403}, 204),
        Role.VIEWER: ({200}, {403}, 403),
        Role.OPERATOR: ({200}, set(orders.values()), 403),
    }
    for role, (reading, ordering, following) in expected.items():
        api = client(role)
        assert {api.get(f"{ONE}/{path}").status_code for path in reads} == reading
        assert {post(api, f"{ONE}/{order}")[0] for order in orders} == ordering
        assert api.get("/api/v1/workers/w1/config?pool=pool").status_code == following
        assert post(api, "/api/v1/workers/w1/acks", ack)[0] == following
