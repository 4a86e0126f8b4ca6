"""Who is named behind the chosen endpoint."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from epp.interfaces.scheduling import ProfileResult, SchedulingResult
from epp.resilience.fallback import runners_up
from tests.support.pool import make_table


def result(totals: list[float], picked: list[int]) -> SchedulingResult:
    candidates = make_table(len(totals)).all()
    endpoints = [candidates.endpoint(position) for position in picked]
    profile = ProfileResult("main", endpoints, candidates, np.array(totals), [], [])
    return SchedulingResult({"main": profile}, "main")


def names(decision: SchedulingResult, most: int, without: str = "") -> list[str]:
    found = runners_up(decision, most, lambda e: e.spec.name != without, random.Random(1))
    return [endpoint.spec.name for endpoint in found]


def test_the_next_best_follow_the_picker_s_choice_which_need_not_be_the_best() -> None:
    assert names(result([0.1, 0.9, 0.5, 0.7], [2]), 3) == ["e1", "e3"]
    assert names(result([0.1, 0.9, 0.5, 0.7], [2, 0]), 3) == ["e1"]


def test_no_more_than_asked_for_and_no_more_than_there_are() -> None:
    assert names(result([0.1, 0.9], [1]), 1) == []
    assert names(result([0.1, 0.9], [1, 0]), 2) == []
    assert names(result([0.1, 0.9], [1]), 16) == ["e0"]
    assert names(result([0.5], [0]), 3) == []


def test_ejected_endpoints_are_left_out() -> None:
    assert names(result([0.1, 0.9, 0.5, 0.7], [1]), 3, without="e3") == ["e2", "e0"]


def test_equal_endpoints_take_turns() -> None:
    decision = result([0.5, 0.5, 0.5, 0.5], [0])
    rng = random.Random(2)
    first = {runners_up(decision, 2, lambda _: True, rng)[0].spec.name for _ in range(50)}
    assert first == {"e1", "e2", "e3"}


@given(
    totals=st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5]), min_size=1, max_size=8),
    most=st.integers(1, 10),
    seed=st.integers(0, 9),
)
def test_best_first_without_repeats(totals: list[float], most: int, seed: int) -> None:
    decision = result(totals, [len(totals) - 1])
    found = runners_up(decision, most, lambda _: True, random.Random(seed))
    slots = [endpoint.slot for endpoint in found]
    assert len(slots) == min(most, len(totals)) - 1
    assert len({*slots, len(totals) - 1}) == len(slots) + 1
    expected = sorted(totals[:-1], reverse=True)[: len(slots)]
    assert [totals[slot] for slot in slots] == expected
