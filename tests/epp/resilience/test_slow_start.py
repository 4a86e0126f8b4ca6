"""New endpoints get a growing part of their share, whatever the picker, and keep what affinity gives them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.config.resilience import SlowStartSpec
from epp.interfaces.endpoint import Candidates, EndpointTable, Floats
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory, ScorerTrace
from epp.plugins.pickers.max_score import MaxScorePicker
from epp.plugins.pickers.weighted_random import WeightedRandomPicker
from epp.resilience.slow_start import SlowStart
from epp.scheduling.profile import Profile
from tests.support.pool import make_plugin, make_request, make_table

WINDOW = 100.0


class Draws:
    """Random numbers that are given."""

    def __init__(self, *draws: float) -> None:
        self._draws = list(draws)

    def random(self) -> float:
        return self._draws.pop(0)


class Fixed:
    """Scores as given."""

    bounded: ClassVar = True

    def __init__(self, category: ScorerCategory, *scores: float) -> None:
        self.category = category
        self._scores = np.array(scores)

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        return self._scores.copy()


def slow_start(table: EndpointTable, rng: Any, **policy: Any) -> SlowStart:
    values = {"window": WINDOW, "initial_share": 0.1}
    return SlowStart(table, SlowStartSpec(**values | policy), rng)


def test_the_share_grows_evenly_from_the_initial_one() -> None:
    table = make_table(2)
    table.warm_up(1, 1000.0)
    slow = slow_start(table, random.Random(1))
    shares = [slow.share(table.all().slots, now).tolist() for now in (1000.0, 1050.0, 1100.0, 1200.0)]
    assert shares == [[1.0, 0.1], [1.0, 0.1 + 0.9 * 0.5], [1.0, 1.0], [1.0, 1.0]]


def test_who_is_held_back_keeps_affinity_and_ranks_behind_the_worst_of_the_others() -> None:
    table = make_table(3)
    table.warm_up(2, 1000.0)
    slow = slow_start(table, Draws(0.6))
    slow.tick(1050.0)
    prefix, queue = np.array([0.0, 0.5, 0.25]), np.array([0.5, 0.25, 1.0])
    scorers = [ScorerTrace("prefix", 3.0, prefix), ScorerTrace("queue", 2.0, queue)]
    totals = 3.0 * prefix + 2.0 * queue
    deduction = slow.hold_back(table.all(), totals, scorers, [True, False])
    assert deduction is not None
    assert (deduction.name, deduction.weight) == ("slow-start", 1.0)
    # The others' balance is 1.0 and 0.5; the new one keeps 0.75 of affinity and as much as the worst.
    assert totals.tolist() == [1.0, 2.0, pytest.approx(0.75 + 0.5, abs=1e-8)]
    assert totals[2] < 1.25
    assert deduction.scores[2] == pytest.approx(-1.5, abs=1e-8)


def test_in_the_other_decisions_nothing_is_deducted() -> None:
    table = make_table(2)
    table.warm_up(1, 1000.0)
    slow = slow_start(table, Draws(0.54))
    slow.tick(1050.0)
    totals = np.array([0.0, 1.0])
    scorers = [ScorerTrace("queue", 1.0, totals.copy())]
    assert slow.hold_back(table.all(), totals, scorers, [False]) is None
    assert totals.tolist() == [0.0, 1.0]


def test_totals_do_not_become_negative_and_lists_of_scores_will_do() -> None:
    table = make_table(2)
    table.warm_up(1, 1000.0)
    slow = slow_start(table, Draws(0.9))
    slow.tick(1000.0)
    totals = np.array([0.0, 0.0])
    slow.hold_back(table.all(), totals, [ScorerTrace("queue", 1.0, [0.0, 0.0])], [False])
    assert totals.tolist() == [0.0, 0.0]


def test_a_pool_in_which_all_are_equally_new_is_left_alone() -> None:
    table = make_table(3)
    for slot in range(3):
        table.warm_up(slot, 1000.0)
    slow = slow_start(table, Draws())
    slow.tick(1010.0)
    totals = np.array([0.0, 0.5, 1.0])
    assert slow.hold_back(table.all(), totals, [], []) is None


def test_shares_are_relative_to_the_warmest_candidate() -> None:
    table = make_table(2)
    table.warm_up(0, 1000.0)
    table.warm_up(1, 1050.0)
    slow = slow_start(table, Draws(0.18, 0.19))
    slow.tick(1050.0)
    totals = np.array([0.25, 1.0])
    scorers = [ScorerTrace("queue", 1.0, totals.copy())]
    assert slow.hold_back(table.all(), totals, scorers, [False]) is None, "0.18 * 0.55 < 0.1"
    assert slow.hold_back(table.all(), totals, scorers, [False]) is not None
    assert totals[1] < 0.25


def test_after_its_window_an_endpoint_is_warm_and_costs_nothing_more() -> None:
    table = make_table(2)
    table.warm_up(1, 1000.0)
    slow = slow_start(table, random.Random(1))
    slow.tick(1100.0)
    assert table.warming == 1
    slow.tick(1100.5)
    assert table.warming == 0


def test_switched_off_everybody_is_warm() -> None:
    table = make_table(2)
    table.warm_up(1, 1000.0)
    slow_start(table, random.Random(1)).configure(SlowStartSpec(enabled=False), 1000.0)
    assert table.warming == 0


@pytest.mark.parametrize(("age", "share"), [(0.0, 0.1), (50.0, 0.55), (90.0, 0.91)])
@pytest.mark.parametrize("idle", [True, False], ids=["new one is idle", "all equal"])
def test_the_best_score_wins_as_often_as_the_share_says(age: float, share: float, idle: bool) -> None:
    """Idle it would win every decision, among four equals every fourth."""
    table = make_table(4)
    table.warm_up(3, 1000.0)
    rng = random.Random(5)
    slow = slow_start(table, rng)
    slow.tick(1000.0 + age)
    queue = Fixed(ScorerCategory.DISTRIBUTION, 0.5, 0.5, 0.5, 1.0 if idle else 0.5)
    profile = Profile(
        "p", [], [("queue", queue, 2.0)], make_plugin(MaxScorePicker, table), None, slow.hold_back
    )
    picks: Counter[str] = Counter(
        profile.run(make_request(), table.all()).endpoints[0].spec.name for _ in range(4000)
    )
    natural = 1.0 if idle else 0.25
    assert picks["e3"] / 4000 == pytest.approx(share * natural, abs=0.025)


def test_a_prefix_on_a_new_endpoint_is_followed_all_the_same() -> None:
    table = make_table(3)
    table.warm_up(2, 1000.0)
    slow = slow_start(table, random.Random(5))
    slow.tick(1000.0)
    scorers = [
        ("prefix", Fixed(ScorerCategory.AFFINITY, 0.0, 0.0, 1.0), 3.0),
        ("queue", Fixed(ScorerCategory.DISTRIBUTION, 0.75, 0.5, 0.75), 2.0),
    ]
    profile = Profile("p", [], scorers, make_plugin(MaxScorePicker, table), None, slow.hold_back)
    picks = {profile.run(make_request(), table.all()).endpoints[0].spec.name for _ in range(200)}
    assert picks == {"e2"}


def test_the_deduction_is_part_of_the_decision_s_trace() -> None:
    table = make_table(2)
    table.warm_up(1, 1000.0)
    slow = slow_start(table, Draws(0.9))
    slow.tick(1000.0)
    queue = Fixed(ScorerCategory.DISTRIBUTION, 0.5, 1.0)
    profile = Profile(
        "p", [], [("queue", queue, 2.0)], make_plugin(WeightedRandomPicker, table), None, slow.hold_back
    )
    result = profile.run(make_request(), table.all())
    assert [trace.name for trace in result.scorers] == ["queue", "slow-start"]
    for position in range(2):
        added = sum(trace.weight * trace.scores[position] for trace in result.scorers)
        assert result.totals[position] == pytest.approx(added)


@given(
    ages=st.lists(st.floats(0.0, 150.0), min_size=2, max_size=8),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_holding_back_only_ever_lowers_and_never_past_affinity(
    ages: list[float], seed: int, data: st.DataObject
) -> None:
    size = len(ages)
    table = make_table(size)
    for slot, age in enumerate(ages):
        table.warm_up(slot, 1000.0 - age)
    slow = slow_start(table, random.Random(seed))
    slow.tick(1000.0)
    parts = st.lists(st.floats(0.0, 1.0), min_size=size, max_size=size)
    affinity, balance = np.array(data.draw(parts)), np.array(data.draw(parts))
    scorers = [ScorerTrace("prefix", 3.0, affinity), ScorerTrace("queue", 2.0, balance)]
    before = 3.0 * affinity + 2.0 * balance
    totals = before.copy()
    deduction = slow.hold_back(table.all(), totals, scorers, [True, False])
    if deduction is None:
        assert totals.tolist() == before.tolist()
        return
    held = np.asarray(deduction.scores) < 0
    warmest = int(np.argmax(slow.share(table.all().slots, 1000.0)))
    assert not held[warmest]
    assert totals[~held].tolist() == before[~held].tolist()
    assert (totals >= 0.0).all()
    assert (totals <= before).all()
    assert (totals[held] >= 3.0 * affinity[held] - 1e-8).all()
