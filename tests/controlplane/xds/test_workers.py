"""What is kept of workers, and how the API shows it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.core.errors import ForbiddenError
from controlplane.core.roles import Action, Actor, Role
from controlplane.xds import workers
from controlplane.xds.models import Worker, WorkerAnswer
from controlplane.xds.subscriptions import Answer
from dataplane.xds.messages import Node, Problem, Refusal, Version
from tests.support.controlplane import ADMIN, OPERATOR, VIEWER, WORKER, client

pytestmark = pytest.mark.django_db

KIND = "t"


def version(number: int) -> Version:
    return Version(number, "0" * 32)


def say(node: str, number: int, *problems: Problem) -> None:
    refusal = Refusal("no", problems) if problems else None
    in_use = version(number - 1 if problems else number)
    workers.answered([(node, Answer(KIND, version(number), str(in_use), refusal))])


def arrive(node: str, pool: str = "pool") -> None:
    workers.arrived(Node(node, pool, {"component": "epp"}), "pickers")


def get(path: str, role: Role = Role.VIEWER) -> Any:
    return client(role).get(f"/api/v1/{path}")


def test_a_worker_is_shown_with_its_last_answer_for_each_type() -> None:
    arrive("w1")
    say("w1", 1)
    say("w1", 2, Problem("documents[0].spec", "is bad"))
    (shown,) = get("workers").json()["items"]
    assert (shown["id"], shown["pool"], shown["user"], shown["connected"]) == ("w1", "pool", "pickers", True)
    assert shown["metadata"] == {"component": "epp"}
    (last,) = shown["types"]
    at = last.pop("at")
    assert last == {
        "type": KIND,
        "outcome": "nack",
        "version": str(version(2)),
        "inUse": str(version(1)),
        "message": "no",
        "problems": [{"path": "documents[0].spec", "message": "is bad"}],
    }
    fully = get("workers/w1").json()
    assert [each["outcome"] for each in fully["answers"]] == ["nack", "ack"]
    assert fully["answers"][0]["at"] == at
    missing = get("workers/w2")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


def test_lists_are_filtered_and_cost_the_same_however_long_they_are() -> None:
    def add(number: int) -> None:
        arrive(f"w{number}", f"p{number % 2}")
        say(f"w{number}", 1)

    api = client(Role.VIEWER)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get("/api/v1/workers").status_code == 200
        return len(captured)

    add(0)
    queries()  # notes the token's use
    before = queries()
    for number in range(1, 8):
        add(number)
    assert queries() == before <= 3
    page = api.get("/api/v1/workers?pool=p1&order=-id&limit=2").json()
    assert ([each["id"] for each in page["items"]], page["total"]) == (["w7", "w5"], 4)
    assert api.get("/api/v1/workers?colour=red").status_code == 422


def test_of_each_worker_the_last_few_answers_are_kept() -> None:
    arrive("w1")
    arrive("w2")
    for number in range(workers.KEPT_ANSWERS + 5):
        say("w1", number + 1)
    say("w2", 1)
    workers.prune()
    kept = WorkerAnswer.objects.filter(worker__node_id="w1")
    assert kept.count() == workers.KEPT_ANSWERS
    assert kept[0].version == str(version(workers.KEPT_ANSWERS + 5))
    assert WorkerAnswer.objects.filter(worker__node_id="w2").count() == 1


def test_who_has_gone_is_shown_as_gone_however_it_went() -> None:
    arrive("w1")
    arrive("w2")
    workers.left({"w1"})
    Worker.objects.filter(node_id="w2").update(seen_at=timezone.now() - workers.SEEN_WITHIN)
    assert [each["connected"] for each in get("workers").json()["items"]] == [False, False]
    workers.present({"w1", "w2"})
    assert [each["connected"] for each in get("workers").json()["items"]] == [True, True]


def test_workers_that_stay_away_and_too_many_of_them_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_WORKERS", 2)
    for number in range(4):
        arrive(f"w{number}")
    old = timezone.now() - workers.FORGOTTEN_AFTER - timedelta(seconds=1)
    Worker.objects.filter(node_id="w3").update(seen_at=old)
    Worker.objects.filter(node_id="w0").update(seen_at=timezone.now() - timedelta(hours=1))
    workers.forget()
    assert list(Worker.objects.values_list("node_id", flat=True)) == ["w1", "w2"]


def test_a_worker_that_tells_too_much_of_itself_is_known_without_it() -> None:
    workers.arrived(Node("w1", "pool", {"long": "x" * workers.MAX_METADATA_BYTES}), "pickers")
    assert Worker.objects.get().metadata == {}


def test_answers_of_unknown_workers_are_dropped() -> None:
    say("nobody", 1)
    assert not WorkerAnswer.objects.exists()


@pytest.mark.parametrize(("role", "status"), [(Role.WORKER, 403), (Role.VIEWER, 200), (Role.ADMIN, 200)])
def test_people_see_workers_and_workers_do_not(role: Role, status: int) -> None:
    arrive("w1")
    assert (get("workers", role).status_code, get("workers/w1", role).status_code) == (status, status)


def test_workers_may_subscribe_and_nothing_else_and_people_may_not_unless_they_may_all() -> None:
    def may(actor: Actor) -> list[Action]:
        return [action for action in Action if actor.may(action, "Worker")]

    assert [may(actor) for actor in (WORKER, VIEWER, OPERATOR, ADMIN)] == [
        [Action.FOLLOW],
        [Action.READ],
        [Action.READ, Action.WRITE],
        list(Action),
    ]
    with pytest.raises(ForbiddenError):
        workers.rows(WORKER)
