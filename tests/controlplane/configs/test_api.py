"""A configuration's life over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.configs import workers
from controlplane.core.errors import Detail
from controlplane.core.roles import Role
from tests.support.controlplane import WORKER, client, picker_config, subscribe

pytestmark = pytest.mark.django_db

ALL = "/api/v1/endpointpickerconfigs"
ONE = f"{ALL}/standard"


def post(api: Any, path: str, body: Any = None) -> tuple[int, Any]:
    answer = api.post(path, body, format="json") if body is not None else api.post(path)
    return answer.status_code, answer.json() if answer.content else None


def running() -> int | None:
    """The revision that the worker w1 should run."""
    found = workers.desired([("w1", "pool")]).get(("w1", "pool"))
    return None if found is None else found.revision


def test_from_a_draft_to_everybody_and_back() -> None:
    api = client()
    assert post(api, ALL, picker_config())[0] == 201
    subscribe("w1")
    assert running() is None
    first = post(api, f"{ONE}/publish")[1]
    assert (first["stage"], running()) == ("rolling", 1)
    workers.acknowledge(WORKER, "w1", "standard", 1, [], first["id"])
    assert api.get(f"{ONE}/rollout").json()["stage"] == "complete"

    assert api.put(ONE, picker_config(5), format="json", HTTP_IF_MATCH='"1"').status_code == 200
    plan = api.get(f"{ONE}/plan?canary=1").json()
    assert plan == {
        "kind": "EndpointPickerConfig",
        "document": "standard",
        "revision": 2,
        "active": 1,
        "changes": [
            {"path": "schedulingProfiles[default].plugins[queue-scorer].weight", "before": 2, "after": 5}
        ],
        "warnings": [],
        "pools": ["pool"],
        "affects": None,
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
    assert running() == 2
    workers.acknowledge(WORKER, "w1", "standard", 2, [Detail("a.b", "no")], rollout["id"])
    shown = api.get(f"{ONE}/rollout").json()
    assert (shown["stage"], shown["reason"]) == ("halted", "w1 refuses it: a.b: no")
    assert (shown["active"], shown["workersPresent"], shown["workersApplied"]) == (1, 1, 0)
    assert shown["workers"][0]["problems"] == [{"path": "a.b", "message": "no"}]
    assert running() == 1

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
    api = client()
    post(api, ALL, picker_config())
    for text in ("a\x00", "\ud800"):
        answer = api.post(f"{ONE}/halt", json.dumps({"reason": text}), content_type="application/json")
        assert (answer.status_code, answer.json()["details"][0]["path"]) == (422, "reason")
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
    subscribe("w1")
    orders = {"publish": 201, "promote": 409, "halt": 200, "rollback": 409}
    reads = ("plan", "revisions", "rollouts")
    expected = {
        Role.WORKER: ({403}, {403}),
        Role.VIEWER: ({200}, {403}),
        Role.OPERATOR: ({200}, set(orders.values())),
    }
    for role, (reading, ordering) in expected.items():
        api = client(role)
        assert {api.get(f"{ONE}/{path}").status_code for path in reads} == reading
        assert {post(api, f"{ONE}/{order}")[0] for order in orders} == ordering
