"""The state machine of rollouts: its stages one by one, and what holds after any sequence of events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controlplane.configs.canary import canary_text, parse_canary
from controlplane.configs.rollout import (
    SPREADING,
    Ack,
    Canary,
    Counts,
    Event,
    Guard,
    GuardTripped,
    Halt,
    Nack,
    Promote,
    Publish,
    RefusedError,
    RollBack,
    Sent,
    Stage,
    State,
    WorkerJoined,
    WorkerLeft,
    canary_of,
    desired_number,
    is_reached,
    judge,
    place,
    step,
)
from dataplane.errors import ConfigError


def run(*events: Event, state: State | None = None) -> State:
    state = state or State(workers=frozenset("ab"))
    for event in events:
        state = step(state, event)
    return state


ONE = State(workers=frozenset("ab"), canary=Canary(count=1))
FIRST = min("ab", key=lambda worker: place("", worker))
OTHER = "b" if FIRST == "a" else "a"


def test_without_a_canary_it_rolls_until_all_have_applied() -> None:
    assert run(Publish()).stage is Stage.ROLLING
    assert run(Publish(), Ack("a")).stage is Stage.ROLLING
    assert run(Publish(), Ack("a"), Ack("b")).stage is Stage.COMPLETE
    assert run(Publish(), Ack("a"), WorkerLeft("b")).stage is Stage.COMPLETE
    assert run(Publish(), WorkerJoined("c"), Ack("a"), Ack("b")).stage is Stage.ROLLING


def test_with_nobody_there_it_is_complete_at_once() -> None:
    assert run(Publish(), state=State()).stage is Stage.COMPLETE


def test_a_canary_waits_for_its_promotion() -> None:
    state = run(Publish(), state=ONE)
    assert (state.stage, canary_of(state)) == (Stage.CANARY, {FIRST})
    assert (is_reached(state, FIRST), is_reached(state, OTHER)) == (True, False)
    with pytest.raises(RefusedError, match="no worker of the canary runs the revision yet"):
        step(state, Promote())
    tried = step(state, Ack(FIRST))
    assert tried.stage is Stage.CANARY
    assert run(Promote(), state=tried).stage is Stage.ROLLING
    assert run(Promote(), Ack(OTHER), state=tried).stage is Stage.COMPLETE


@pytest.mark.parametrize("before", [ONE, replace(ONE, canary=None)])
def test_the_first_refusal_stops_it_and_takes_nothing_back(before: State) -> None:
    state = run(Publish(), Ack(FIRST), Nack(OTHER, "plugins[0].type: unknown"), state=before)
    assert (state.stage, state.reason) == (Stage.HALTED, f"{OTHER} refuses it: plugins[0].type: unknown")
    assert (state.applied, state.rejected) == ({FIRST}, {OTHER})
    assert not is_reached(state, OTHER)
    numbers = [
        desired_number(state, 2, worker, active=1, applied=n) for worker, n in ((FIRST, 2), (OTHER, 1))
    ]
    assert numbers == [2, 1]


def test_errors_and_people_stop_it_too() -> None:
    assert run(Publish(), GuardTripped("bad")).reason == "bad"
    assert run(Publish(), Halt("no")).stage is Stage.HALTED
    assert run(Publish(), Ack("a"), Ack("b"), GuardTripped("late")).stage is Stage.COMPLETE


@pytest.mark.parametrize(
    ("events", "order", "message"),
    [
        ([Publish()], Publish(), "the rollout is rolling already"),
        ([Publish()], Promote(), "the rollout is rolling; only a canary can be promoted"),
        ([Publish(), Halt("x")], Halt("x"), "the rollout is halted; only one under way can be halted"),
        ([Publish(), Halt("x")], Promote(), "the rollout is halted; only a canary can be promoted"),
        ([Publish(), RollBack("x")], RollBack("x"), "the rollout is rolled back already"),
    ],
)
def test_orders_that_the_stage_does_not_allow_are_refused(
    events: list[Event], order: Event, message: str
) -> None:
    state = run(*events)
    with pytest.raises(RefusedError) as caught:
        step(state, order)
    assert str(caught.value) == message


def test_whoever_runs_it_cannot_refuse_it_any_more() -> None:
    state = run(Publish(), Ack("a"), Nack("a", "again"))
    assert (state.applied, state.rejected, state.stage) == ({"a"}, frozenset(), Stage.HALTED)


WORKERS = [f"w{number}" for number in range(1000)]


def test_a_share_is_kept_and_a_worker_keeps_its_place() -> None:
    state = State(stage=Stage.CANARY, canary=Canary(share=0.1), workers=frozenset(WORKERS))
    chosen = canary_of(state)
    assert 70 <= len(chosen) <= 130
    fewer = replace(state, workers=frozenset(WORKERS[:500]))
    assert canary_of(fewer) == chosen & fewer.workers
    assert canary_of(replace(state, canary=Canary(share=0.2))) > chosen
    assert len(canary_of(replace(state, workers=frozenset({"w0"}), canary=Canary(share=0.0001)))) == 1


def test_another_document_tries_other_workers_first() -> None:
    state = State(stage=Stage.CANARY, canary=Canary(count=5), workers=frozenset(WORKERS))
    assert canary_of(state) != canary_of(replace(state, salt="other"))


def test_nobody_goes_back_to_an_older_revision() -> None:
    assert desired_number(None, 0, "a", active=None, applied=None) is None
    assert desired_number(None, 0, "a", active=3, applied=None) == 3
    assert desired_number(State(stage=Stage.CANARY, canary=Canary(count=1)), 5, "a", active=3, applied=4) == 4
    assert desired_number(State(stage=Stage.ROLLING), 5, "a", active=3, applied=4) == 5


@pytest.mark.parametrize(
    ("observed", "tripped"),
    [
        ([], False),
        ([(99, 99)], False),
        ([(60, 3), (60, 3)], False),
        ([(60, 3), (60, 4)], True),
        ([(1000, 50)], False),
        ([(1000, 51)], True),
    ],
)
def test_the_guard_judges_all_workers_together_once_there_is_enough(
    observed: list[tuple[int, int]], tripped: bool
) -> None:
    assert (judge(Guard(0.05, 100), [Counts(*each) for each in observed]) is not None) == tripped


def test_the_guard_says_what_it_saw() -> None:
    seen = [Counts(10, 4), Counts(10, 1, 3)]
    assert judge(Guard(0.05, 10), seen) == GuardTripped(
        "5 of 20 requests failed (25.0%) at workers that run it; 5.0% is allowed"
    )
    assert judge(Guard(None, 10, 0.1), seen) == GuardTripped(
        "3 of 20 requests were blocked (15.0%) at workers that run it; 10.0% is allowed"
    )
    assert judge(Guard(None, 10, 0.15), seen) is None


@pytest.mark.parametrize("text", ["10%", "0.5%", "99.9999%", "1", "12"])
def test_canaries_are_written_as_they_are_read(text: str) -> None:
    assert canary_text(parse_canary(text)) == text


@pytest.mark.parametrize("text", ["", "0", "0%", "0.00%", "100%", "-1", "1.5", "ten", "10 %", "\u0661"])
def test_other_texts_are_no_canaries(text: str) -> None:
    with pytest.raises(ConfigError, match='such as "10%"'):
        parse_canary(text)


IDS = [f"worker-{number}" for number in range(6)]
worker_ids = st.sampled_from(IDS)


class Site(RuleBasedStateMachine):
    """A document with two revisions and its workers, which ask and answer in any order."""

    @initialize(
        canary=st.none()
        | st.builds(Canary, count=st.integers(1, 4))
        | st.builds(Canary, share=st.floats(0.01, 0.99)),
        present=st.frozensets(worker_ids),
    )
    def begin(self, canary: Canary | None, present: frozenset[str]) -> None:
        self.state = State(canary=canary, workers=present, salt="document")
        self.revision = 2
        self.active = 1
        self.running: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.refused: set[str] = set()

    def move(self, event: Event) -> None:
        before = self.state
        try:
            self.state = step(before, event)
        except RefusedError:
            assert self.state is before
        if self.state.stage is Stage.COMPLETE:
            self.active = max(self.active, self.revision)

    def desired(self, worker: str) -> int:
        found = desired_number(
            self.state, self.revision, worker, active=self.active, applied=self.running.get(worker)
        )
        assert found is not None
        return found

    @rule(event=st.sampled_from([Publish(), Promote(), Halt("x"), RollBack("x"), GuardTripped("x")]))
    def order(self, event: Event) -> None:
        self.move(event)

    @rule(worker=worker_ids)
    def ask(self, worker: str) -> None:
        self.move(WorkerJoined(worker))
        number = self.desired(worker)
        if number == self.revision and self.state.stage in SPREADING:
            self.move(Sent(worker))
        self.held[worker] = number

    @rule(worker=worker_ids, is_good=st.booleans())
    def answer(self, worker: str, is_good: bool) -> None:
        number = self.held.get(worker)
        if number is None:
            return
        if is_good or self.running.get(worker) == number:
            assert number >= self.running.get(worker, 0), "applied versions only grow"
            self.running[worker] = number
            event: Event = Ack(worker)
        else:
            event = Nack(worker, "no")
        if number == self.revision:
            self.move(event)

    @rule(worker=worker_ids)
    def leave(self, worker: str) -> None:
        self.move(WorkerLeft(worker))

    @invariant()
    def a_canary_is_as_small_as_was_asked_for(self) -> None:
        if self.state.stage is Stage.CANARY and self.state.canary and self.state.canary.count:
            assert len(canary_of(self.state) - self.state.sent) <= self.state.canary.count

    @invariant()
    def complete_means_that_everybody_there_had_applied_it(self) -> None:
        if self.state.stage is Stage.ROLLING:
            assert self.state.workers - self.state.applied
        assert not self.state.applied & self.state.rejected
        assert self.state.applied | self.state.rejected <= self.state.sent

    @invariant()
    def a_refusal_spreads_no_further(self) -> None:
        if self.state.rejected:
            assert self.state.stage in {Stage.HALTED, Stage.ROLLED_BACK, Stage.COMPLETE}

    @invariant()
    def who_is_not_reached_stays(self) -> None:
        if self.state.stage in {Stage.PENDING, Stage.HALTED, Stage.ROLLED_BACK}:
            for worker in IDS:
                assert self.desired(worker) == max(self.active, self.running.get(worker, 0))

    @invariant()
    def asking_again_gives_the_same(self) -> None:
        for worker in self.state.workers:
            assert self.desired(worker) == self.desired(worker) >= self.running.get(worker, 0)


TestSite = Site.TestCase
TestSite.settings = settings(max_examples=60, stateful_step_count=25)


@given(st.lists(worker_ids), st.randoms())
def test_all_workers_converge_when_nobody_refuses(joining: list[str], random: Callable[..., object]) -> None:
    state = run(Publish(), *map(WorkerJoined, joining), state=State(workers=frozenset({"first"})))
    order = [*{*joining, "first"}]
    random.shuffle(order)  # type: ignore[attr-defined]
    state = run(*map(Ack, order), state=state)
    assert state.stage is Stage.COMPLETE
    assert {desired_number(state, 2, worker, active=2, applied=2) for worker in order} == {2}
