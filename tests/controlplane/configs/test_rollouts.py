"""Rollouts in the database: orders and reports move them, workers get what they should run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.configs import rollouts, workers
from controlplane.configs.guarding import Guarded, guarded_pools
from controlplane.configs.models import ConfigDocument, Rollout
from controlplane.configs.plans import plan
from controlplane.configs.rollout import Canary, Guard, Stage
from controlplane.configs.rollouts import Wish
from controlplane.configs.services import PickerConfigService
from controlplane.configs.workers import Desired
from controlplane.core.errors import ConflictError, Detail, ForbiddenError, MissingError
from controlplane.core.models import AuditEntry
from controlplane.xds import workers as registry
from controlplane.xds.models import Worker
from tests.support.controlplane import OPERATOR, VIEWER, WORKER, picker_config, subscribe

pytestmark = pytest.mark.django_db

SERVICE = PickerConfigService()
REFUSED = [Detail("plugins[0].type", "unknown")]


def desired(worker: str) -> Desired | None:
    """What a worker that is there should run."""
    return workers.desired([(worker, "pool")]).get((worker, "pool"))


def ask(worker: str) -> int | None:
    subscribe(worker)
    found = desired(worker)
    return None if found is None else found.revision


def answer(worker: str, number: int, problems: list[Detail] | None = None) -> None:
    workers.acknowledge(WORKER, worker, "standard", number, problems or [], newest().pk)


def newest() -> Rollout:
    found = Rollout.objects.first()
    assert found is not None
    return found


def active() -> int | None:
    row = ConfigDocument.objects.get()
    return None if row.active is None else row.active.number


@pytest.fixture
def running() -> str:
    """Two workers that run revision 1; revision 2 is a draft. The worker that a canary of one begins with."""
    SERVICE.create(OPERATOR, picker_config())
    rollouts.publish(OPERATOR, "standard", Wish())
    for worker in ("w1", "w2"):
        assert ask(worker) == 1
        answer(worker, 1)
    SERVICE.update(OPERATOR, "standard", picker_config(5))
    rollouts.publish(OPERATOR, "standard", Wish(canary=Canary(count=1)))
    numbers = {worker: ask(worker) for worker in ("w1", "w2")}
    assert sorted(numbers.values()) == [1, 2]  # type: ignore[type-var]
    return max(numbers, key=lambda worker: numbers[worker] or 0)


def other(worker: str) -> str:
    return "w2" if worker == "w1" else "w1"


def test_nothing_is_desired_before_something_is_published() -> None:
    assert ask("w1") is None
    SERVICE.create(OPERATOR, picker_config())
    assert ask("w1") is None
    rollouts.publish(OPERATOR, "standard", Wish())
    assert newest().stage == Stage.ROLLING
    found = desired("w1")
    assert found is not None
    assert (found.document, found.revision, found.rollout) == ("standard", 1, newest().pk)
    assert (active(), newest().stage) == (None, Stage.ROLLING)
    answer("w1", 1)
    assert (active(), newest().stage) == (1, Stage.COMPLETE)


def test_a_canary_is_promoted_and_complete_when_all_have_applied(running: str) -> None:
    with pytest.raises(ConflictError, match="no worker of the canary runs the revision yet"):
        rollouts.promote(OPERATOR, "standard")
    answer(running, 2)
    assert (newest().stage, active(), ask(other(running))) == (Stage.CANARY, 1, 1)
    rollouts.promote(OPERATOR, "standard", newest().pk)
    assert ask(other(running)) == 2
    answer(other(running), 2)
    assert (newest().stage, active()) == (Stage.COMPLETE, 2)
    assert ask("w3") == 2
    actions = list(AuditEntry.objects.values_list("action", flat=True)[:3])
    assert actions == ["complete", "promote", "publish"]


def test_the_first_refusal_halts_it_and_everybody_keeps_what_runs(running: str) -> None:
    answer(running, 2, REFUSED)
    rollout = newest()
    assert (rollout.stage, rollout.reason) == (
        Stage.HALTED,
        f"{running} refuses it: plugins[0].type: unknown",
    )
    assert (ask("w1"), ask("w2"), ask("w3"), active()) == (1, 1, 1, 1)
    shown = rollouts.detailed(*rollouts.current(VIEWER, "standard"))
    (refusing,) = [worker for worker in shown["workers"] if worker["outcome"] == "rejected"]
    assert refusing["problems"] == [{"path": "plugins[0].type", "message": "unknown"}]
    assert (refusing["worker"], refusing["applied"]) == (running, 1)


def test_rolling_back_is_a_new_revision_with_the_older_content(running: str) -> None:
    answer(running, 2)
    rollouts.halt(OPERATOR, "standard", "looks wrong")
    assert (ask(running), ask(other(running))) == (2, 1)
    rollouts.roll_back(OPERATOR, "standard")
    row = ConfigDocument.objects.get()
    three, _, one = row.revisions.all()
    assert (three.number, three.digest, three.parent) == (3, one.digest, one)
    assert [rollout.stage for rollout in row.rollouts.all()] == [
        Stage.ROLLING,
        Stage.ROLLED_BACK,
        Stage.COMPLETE,
    ]
    assert SERVICE.document(row)["schedulingProfiles"] == picker_config(2)["schedulingProfiles"]
    for worker in ("w1", "w2"):
        assert ask(worker) == 3
        answer(worker, 3)
    assert (newest().stage, active()) == (Stage.COMPLETE, 3)


def test_a_complete_rollout_goes_back_to_what_was_active_before(running: str) -> None:
    answer(running, 2)
    rollouts.promote(OPERATOR, "standard")
    answer(other(running), 2)
    rollouts.roll_back(OPERATOR, "standard")
    revisions = ConfigDocument.objects.get().revisions
    assert revisions.get(number=3).digest == revisions.get(number=1).digest


def test_a_plan_says_that_a_revision_is_too_old_to_be_published(running: str) -> None:
    assert plan(OPERATOR, "standard", 2, None)["warnings"] == []
    said = "revision 1 is older than revision 2, which was published; rolling back makes a new revision with "
    assert plan(OPERATOR, "standard", 1, None)["warnings"] == [f"{said}an older content"]


def test_there_is_nothing_to_go_back_to_from_the_first_revision() -> None:
    SERVICE.create(OPERATOR, picker_config())
    rollouts.publish(OPERATOR, "standard", Wish())
    with pytest.raises(ConflictError, match="there is no revision before 1 that all workers ran"):
        rollouts.roll_back(OPERATOR, "standard")
    with pytest.raises(ConflictError, match="revision 1 was published before; rolling back makes a new"):
        rollouts.publish(OPERATOR, "standard", Wish())
    assert (newest().stage, active()) == (Stage.COMPLETE, 1)


def test_one_rollout_at_a_time_and_numbers_only_grow(running: str) -> None:
    with pytest.raises(ConflictError, match=r"revision 2 is being rolled out \(canary\)"):
        rollouts.publish(OPERATOR, "standard", Wish())
    first = newest().pk
    rollouts.halt(OPERATOR, "standard")
    with pytest.raises(ConflictError, match="revision 1 is older than revision 2, which was published;"):
        rollouts.publish(OPERATOR, "standard", Wish(revision=1))
    assert rollouts.publish(OPERATOR, "standard", Wish(revision=2)).pk > first, (
        "a halted one can be tried again"
    )
    with pytest.raises(ConflictError, match=f"rollout {first} is over"):
        rollouts.halt(OPERATOR, "standard", rollout_id=first)
    with pytest.raises(MissingError, match="has no revision 9"):
        rollouts.publish(OPERATOR, "standard", Wish(revision=9))


def test_nobody_waits_for_a_worker_that_is_gone(running: str) -> None:
    answer(running, 2)
    rollouts.promote(OPERATOR, "standard")
    Worker.objects.filter(node_id=other(running)).update(seen_at=timezone.now() - timedelta(minutes=2))
    Worker.objects.filter(node_id=running).update(seen_at=timezone.now() - timedelta(seconds=30))
    registry.sweep()
    assert (newest().stage, active()) == (Stage.COMPLETE, 2)
    assert ask(other(running)) == 2, "it is there again"


def test_the_guard_stops_a_rollout_that_costs_requests() -> None:
    SERVICE.create(OPERATOR, picker_config())
    rollouts.publish(OPERATOR, "standard", Wish(canary=Canary(count=1), guard=Guard(0.1, 50)))
    assert ask("w1") == 1
    assert guarded_pools(["pool", "other"]) == {"pool": Guarded("standard", 1, newest().pk)}
    workers.observe(WORKER, "w1", "standard", 1, 100, 100)
    assert newest().stage == Stage.CANARY, "it does not run it yet"
    answer("w1", 1)
    workers.observe(WORKER, "w1", "standard", 1, 40, 40)
    assert newest().stage == Stage.CANARY
    workers.observe(WORKER, "w1", "standard", 1, 60, 6)
    assert newest().stage == Stage.CANARY
    workers.observe(WORKER, "w1", "standard", 1, 60, 7)
    assert newest().stage == Stage.HALTED
    assert newest().reason.startswith("7 of 60 requests failed")
    assert guarded_pools(["pool"]) == {}


def test_reports_that_come_late_or_twice_change_nothing(running: str) -> None:
    answer(running, 2)
    before = newest().acks.get(worker=running).at
    answer(running, 1)
    answer(running, 2, REFUSED)
    assert (newest().stage, newest().acks.get(worker=running).at) == (Stage.CANARY, before)
    applied = Worker.objects.get(node_id=running).applied
    assert applied is not None
    assert applied.number == 2


def test_only_workers_report_and_only_operators_order(running: str) -> None:
    for actor in (VIEWER, OPERATOR):
        for refused in (
            lambda actor=actor: workers.acknowledge(actor, running, "standard", 2, REFUSED, newest().pk),
            lambda actor=actor: workers.observe(actor, running, "standard", 2, 9, 9),
        ):
            with pytest.raises(ForbiddenError):
                refused()
    for actor in (VIEWER, WORKER):
        orders: list[Any] = [
            lambda actor=actor: rollouts.publish(actor, "standard", Wish()),
            lambda actor=actor: rollouts.promote(actor, "standard"),
            lambda actor=actor: rollouts.halt(actor, "standard"),
            lambda actor=actor: rollouts.roll_back(actor, "standard"),
        ]
        for refused in orders:
            with pytest.raises(ForbiddenError):
                refused()
    with pytest.raises(ForbiddenError):
        rollouts.current(WORKER, "standard")
    assert (newest().stage, ask("w1") == 2 or ask("w2") == 2) == (Stage.CANARY, True)


def test_asking_again_writes_nothing_and_asks_the_database_little(running: str) -> None:
    for worker in ("w1", "w2"):
        with CaptureQueriesContext(connection) as captured:
            desired(worker)
        said = [query["sql"].split()[0] for query in captured]
        assert (set(said), len(said) <= 8) == ({"SELECT"}, True)


def test_a_report_of_somebody_who_never_subscribed_is_refused(running: str) -> None:
    with pytest.raises(MissingError, match="the worker stranger does not follow"):
        answer("stranger", 2, REFUSED)
    assert newest().stage == Stage.CANARY


def test_a_removed_document_leaves_no_trace_and_workers_keep_what_they_run(running: str) -> None:
    SERVICE.delete(OPERATOR, "standard")
    assert not Rollout.objects.exists()
    assert ask("w1") is None
