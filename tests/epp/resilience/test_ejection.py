"""Who fails is left out, comes back by a probe, and never too many at once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dataplane.config.resilience import EjectionSpec
from epp.interfaces.endpoint import Endpoint, EndpointTable
from epp.resilience.ejection import PROBE_LEASE_S, Ejector, Reason, State, Trial
from tests.support.pool import add_endpoint, make_table


def make(count: int = 4, **policy: Any) -> tuple[EndpointTable, Ejector, list[Endpoint]]:
    """A table and its ejector; three failures in a row eject for 10 s, then 20, 40, 60."""
    values: dict[str, Any] = {"consecutive_failures": 3, "base_time": 10.0, "max_time": 60.0, "jitter": 0.0}
    table = make_table(count)
    ejector = Ejector(table, EjectionSpec(**values | policy), random.Random(1))
    return table, ejector, list(table.all().endpoints)


def fail(ejector: Ejector, endpoint: Endpoint, times: int = 3, now: float = 0.0) -> Reason | None:
    reason = None
    for _ in range(times):
        reason = ejector.failed(endpoint, None, now)
    return reason


def ejected(table: EndpointTable) -> list[str]:
    return [e.spec.name for e in table.all().endpoints if table.ejected[e.slot]]


def test_failures_in_a_row_eject_and_a_success_between_starts_over() -> None:
    table, ejector, (a, *_) = make(min_requests=0)
    assert fail(ejector, a, 2) is None
    assert ejector.succeeded(a, None, 1.0) is False
    assert fail(ejector, a, 2) is None
    assert ejected(table) == []
    assert fail(ejector, a, 1) is Reason.CONSECUTIVE
    assert ejected(table) == ["e0"]
    assert table.barred == 1


def test_dead_endpoints_do_not_keep_one_that_answers_errors_in_service() -> None:
    table, ejector, (a, b, c, d) = make()
    assert [fail(ejector, each) for each in (a, b)] == [Reason.CONSECUTIVE] * 2
    assert fail(ejector, c) is None, "half of the pool is away"
    for each in (a, b):
        table.distrust(each.slot, gone=True)
    assert fail(ejector, c, 1) is Reason.CONSECUTIVE
    assert fail(ejector, d) is None, "nobody else is left"
    ejector.configure(EjectionSpec(max_ejected_share=0.25), 1.0)
    assert ejected(table) == ["e0", "e1", "e2"]


def test_a_success_of_an_endpoint_without_a_past_leaves_no_record() -> None:
    _, ejector, (a, *_) = make()
    assert ejector.succeeded(a, None, 1.0) is False
    assert ejector.records == {}


def test_a_share_of_failures_within_the_window_ejects_once_there_are_enough_requests() -> None:
    table, ejector, (a, *_) = make(consecutive_failures=0, failure_share=0.5, min_requests=6, window=10.0)
    outcomes = [False, True, False, True, True]
    for i, good in enumerate(outcomes):
        if good:
            ejector.succeeded(a, None, float(i))
        else:
            assert ejector.failed(a, None, float(i)) is None
    assert ejector.failed(a, None, 5.0) is Reason.SHARE
    assert ejected(table) == ["e0"]


def test_failures_of_an_earlier_window_do_not_count_into_the_share() -> None:
    table, ejector, (a, *_) = make(consecutive_failures=0, failure_share=0.5, min_requests=3, window=10.0)
    assert ejector.failed(a, None, 0.0) is None
    assert ejector.failed(a, None, 1.0) is None
    assert ejector.failed(a, None, 11.5) is None
    assert ejector.failed(a, None, 12.0) is None
    assert ejected(table) == []
    assert ejector.failed(a, None, 12.5) is Reason.SHARE


def test_a_record_is_dropped_when_a_window_has_passed_without_failure() -> None:
    _, ejector, (a, *_) = make(window=10.0)
    ejector.failed(a, None, 0.0)
    ejector.succeeded(a, None, 10.0)
    assert a in ejector.records
    ejector.succeeded(a, None, 10.5)
    assert ejector.records == {}


def test_an_ejected_endpoint_is_probed_by_one_request_at_a_time_and_success_brings_it_back() -> None:
    table, ejector, (a, b, *_) = make()
    fail(ejector, a, now=100.0)
    ejector.tick(109.9)
    assert ejector.state_of(a) is State.EJECTED
    ejector.tick(110.0)
    assert ejector.state_of(a) is State.PROBING
    assert ejected(table) == []
    assert ejector.dispatched(b, 110.0) is None
    trial = ejector.dispatched(a, 110.0)
    assert trial is not None
    assert ejected(table) == ["e0"], "while a probe is under way nobody else goes there"
    assert ejector.succeeded(a, trial, 111.0) is True
    assert ejected(table) == []
    assert ejector.state_of(a) is State.WATCHED
    assert ejector.succeeded(a, None, 111.0) is False


def test_a_failed_probe_ejects_for_longer_up_to_the_longest_time() -> None:
    _, ejector, (a, *_) = make()
    fail(ejector, a, now=0.0)
    now, lasted = 0.0, []
    for _ in range(4):
        lasts = ejector.records[a].until - now
        lasted.append(lasts)
        now += lasts
        ejector.tick(now)
        assert ejector.failed(a, ejector.dispatched(a, now), now) is Reason.PROBE
    assert lasted == [10.0, 20.0, 40.0, 60.0]


def test_each_window_in_service_takes_back_a_step_of_the_back_off() -> None:
    _, ejector, (a, *_) = make(window=30.0)
    fail(ejector, a, now=0.0)
    ejector.tick(10.0)
    ejector.failed(a, ejector.dispatched(a, 10.0), 10.0)
    ejector.tick(30.0)
    ejector.succeeded(a, ejector.dispatched(a, 30.0), 30.0)
    assert ejector.records[a].level == 2
    fail(ejector, a, now=65.0)
    assert ejector.records[a].until == 65.0 + 20.0
    ejector.tick(85.0)
    ejector.succeeded(a, ejector.dispatched(a, 85.0), 85.0)
    ejector.succeeded(a, None, 145.5)
    assert ejector.records == {}, "two windows took back both steps"


def test_a_probe_without_an_outcome_lets_the_next_request_try() -> None:
    table, ejector, (a, *_) = make()
    fail(ejector, a, now=0.0)
    ejector.tick(10.0)
    trial = ejector.dispatched(a, 10.0)
    assert trial is not None
    ejector.undecided(a, trial)
    assert ejected(table) == []
    assert ejector.dispatched(a, 12.0) is not None
    assert ejected(table) == ["e0"]
    ejector.tick(12.0 + PROBE_LEASE_S - 0.1)
    assert ejected(table) == ["e0"]
    ejector.tick(12.0 + PROBE_LEASE_S)
    assert ejected(table) == [], "a probe that hangs does not keep the endpoint away for ever"


def test_outcomes_of_requests_from_before_the_ejection_change_nothing() -> None:
    table, ejector, (a, *_) = make()
    fail(ejector, a, now=0.0)
    until = ejector.records[a].until
    assert ejector.failed(a, None, 1.0) is None
    assert ejector.succeeded(a, None, 1.0) is False
    assert ejector.records[a].until == until
    assert ejected(table) == ["e0"]


def test_a_request_that_had_to_go_to_an_ejected_endpoint_brings_it_back_by_success_alone() -> None:
    table, ejector, (a, *_) = make()
    fail(ejector, a, now=0.0)
    trial = ejector.dispatched(a, 1.0)
    assert trial is not None
    assert ejector.failed(a, trial, 2.0) is None
    assert ejector.records[a].until == 10.0, "failing while ejected lengthens nothing"
    assert ejector.succeeded(a, ejector.dispatched(a, 3.0), 4.0) is True
    assert ejected(table) == []


def test_a_trial_of_an_earlier_ejection_is_void() -> None:
    _, ejector, (a, *_) = make()
    fail(ejector, a, now=0.0)
    ejector.tick(10.0)
    old = ejector.dispatched(a, 10.0)
    assert ejector.failed(a, old, 10.0) is Reason.PROBE
    assert ejector.succeeded(a, old, 11.0) is False
    assert ejector.state_of(a) is State.EJECTED


@pytest.mark.parametrize(("count", "share", "most"), [(1, 1.0, 0), (2, 0.1, 1), (4, 0.5, 2), (5, 1.0, 4)])
def test_never_more_than_the_share_and_never_the_last(count: int, share: float, most: int) -> None:
    table, ejector, endpoints = make(count, max_ejected_share=share)
    for endpoint in endpoints:
        fail(ejector, endpoint)
    assert len(ejected(table)) == most
    assert ejector.count(State.EJECTED) == most


def test_an_endpoint_is_not_ejected_when_nobody_listens_at_the_others() -> None:
    table, ejector, (a, b) = make(2)
    table.distrust(b.slot, gone=True)
    assert fail(ejector, a, 5) is None
    table.reached(b.slot, 1.0)
    assert fail(ejector, a, 1) is Reason.CONSECUTIVE


def test_when_the_pool_shrinks_those_due_first_return() -> None:
    table, ejector, (a, b, c, d) = make(4)
    fail(ejector, b, now=1.0)
    fail(ejector, a, now=2.0)
    table.remove(c.spec.id)
    ejector.forget(c, 3.0)
    assert ejected(table) == ["e0"]
    table.remove(d.spec.id)
    ejector.forget(d, 4.0)
    assert ejected(table) == ["e0"]
    table.remove(b.spec.id)
    ejector.forget(b, 5.0)
    assert ejected(table) == []


def test_an_endpoint_that_returns_starts_afresh_and_late_outcomes_do_not_touch_it() -> None:
    table, ejector, (a, *_) = make()
    fail(ejector, a, now=0.0)
    ejector.tick(10.0)
    trial = ejector.dispatched(a, 10.0)
    table.remove(a.spec.id)
    ejector.forget(a, 11.0)
    successor = add_endpoint(table, "e0")
    assert successor.slot == a.slot
    assert ejector.failed(a, trial, 12.0) is None
    assert fail(ejector, a, 5) is None
    assert ejector.records == {}
    assert ejected(table) == []
    assert fail(ejector, successor, 2) is None


def test_jitter_spreads_the_times() -> None:
    _, ejector, (a, b, *_) = make(jitter=0.5)
    fail(ejector, a)
    fail(ejector, b)
    times = {ejector.records[e].until for e in (a, b)}
    assert len(times) == 2
    assert all(5.0 <= time <= 15.0 for time in times)


def test_switching_it_off_brings_everybody_back_and_another_policy_keeps_them_away() -> None:
    table, ejector, (a, *_) = make()
    fail(ejector, a)
    ejector.configure(EjectionSpec(consecutive_failures=1), 1.0)
    assert ejected(table) == ["e0"]
    ejector.configure(EjectionSpec(enabled=False), 2.0)
    assert ejected(table) == []
    assert fail(ejector, a, 50) is None
    assert ejector.records == {}


def test_what_is_shown_of_an_endpoint() -> None:
    _, ejector, (a, b, *_) = make()
    fail(ejector, a, now=100.0)
    assert ejector.describe(b, 101.0) is None
    assert ejector.describe(a, 104.0) == {
        "state": "ejected",
        "secondsInState": 4.0,
        "secondsLeft": 6.0,
        "consecutiveFailures": 3,
        "windowFailures": 3,
        "windowRequests": 3,
        "ejections": 1,
        "backOffSteps": 1,
    }


class EjectorMachine(RuleBasedStateMachine):
    """Outcomes in any order, late ones included, over endpoints that come and go and a clock that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = EndpointTable(capacity=2)
        policy = EjectionSpec(consecutive_failures=2, base_time=4.0, max_time=20.0, jitter=0.1, window=5.0)
        self.ejector = Ejector(self.table, policy, random.Random(3))
        self.now = 0.0
        self.names = 0
        self.sent: list[tuple[Endpoint, Trial | None]] = []

    @rule()
    def add(self) -> None:
        if len(self.table) < 6:
            self.names += 1
            add_endpoint(self.table, f"n{self.names}")

    @precondition(lambda self: len(self.table))
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        endpoint = data.draw(st.sampled_from(list(self.table.all().endpoints)))
        self.table.remove(endpoint.spec.id)
        self.ejector.forget(endpoint, self.now)

    @precondition(lambda self: len(self.table))
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        self.ejector.tick(self.now)
        endpoint = data.draw(st.sampled_from(list(self.table.all().present().endpoints)))
        self.sent.append((endpoint, self.ejector.dispatched(endpoint, self.now)))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), outcome=st.sampled_from(["failed", "failed", "succeeded", "undecided"]))
    def hear(self, data: st.DataObject, outcome: str) -> None:
        endpoint, trial = self.sent.pop(data.draw(st.integers(0, len(self.sent) - 1)))
        if outcome == "failed":
            self.ejector.failed(endpoint, trial, self.now)
        elif outcome == "succeeded":
            self.ejector.succeeded(endpoint, trial, self.now)
        elif trial is not None:
            self.ejector.undecided(endpoint, trial)

    @rule(seconds=st.floats(0.1, 30.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def columns_counters_and_records_agree(self) -> None:
        table, ejector = self.table, self.ejector
        rows = list(table.all().endpoints)
        assert set(ejector.records) <= set(rows)
        assert table.barred == sum(bool(table.ejected[row.slot]) for row in rows)
        for row in rows:
            record = ejector.records.get(row)
            if table.ejected[row.slot]:
                assert record is not None
                assert record.state is not State.WATCHED
                assert record.state is State.EJECTED or record.probe_until is not None
            elif record is not None:
                assert record.state is not State.EJECTED

    @invariant()
    def enough_endpoints_are_left(self) -> None:
        size = len(self.table)
        away = sum(record.state is not State.WATCHED for record in self.ejector.records.values())
        assert away <= max(0, min(size - 1, max(1, size // 2)))
        assert self.table.barred < max(1, size)

    @invariant()
    def everybody_comes_back_some_time(self) -> None:
        for record in self.ejector.records.values():
            if record.state is State.EJECTED:
                assert record.until <= self.now + 20.0 * 1.1
                assert self.ejector._due <= record.until


TestEjectorMachine = EjectorMachine.TestCase
TestEjectorMachine.settings = settings(max_examples=60, stateful_step_count=40)
