"""``ttft-aware-scorer``: expected times by the slope between two observed points."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from dataplane.plugin.base import TypedName
from ipp.interfaces.models import ModelData, ServedModel
from ipp.interfaces.selection import ScoreTrace
from ipp.plugins.scorers.ttft_aware import TtftAwareScorer, TtftAwareScorerParams
from ipp.plugins.ttft_scoring import Expectation, Expectations
from ipp.ttft import Observation, TtftTable
from tests.support.clock import ManualClock

MODELS = [ServedModel(name) for name in "ab"]


class Case:
    """A scorer with its table, whose reasons are asked for."""

    def __init__(self, **params: Any) -> None:
        self.clock = ManualClock()
        handle: Any = SimpleNamespace(rng=random.Random(3), clock=self.clock, data=ModelData())
        self.scorer = TtftAwareScorer(TypedName("s", "s"), TtftAwareScorerParams(**params), handle)
        self.table = handle.data.table(TtftTable)
        handle.data.table(ScoreTrace).is_wanted = True
        self.request: Any = SimpleNamespace(state={})

    def observe(self, model: str, *seen: tuple[float, int], times: int = 1) -> None:
        window = self.table.window(model)
        for seconds, in_flight in seen * times:
            window.observe(Observation(self.clock.now, seconds, in_flight))

    def scores(self) -> list[float]:
        return list(self.scorer.score_models(self.request, MODELS))

    def expected(self, model: str) -> Expectation:
        self.scores()
        found: Expectation = self.request.state[Expectations][model]
        return found


def curved(case: Case) -> None:
    """A tenth at 0.1 s idle, the quicker quarter at 0.2 s with 4, the median at 0.6 s with 8."""
    case.observe("a", *[(0.1, 0)] * 15, *[(0.2, 4)] * 25, *[(0.6, 8)] * 30, *[(2.0, 9)] * 30)


@pytest.mark.parametrize(("in_flight", "seconds"), [(8, 0.6), (12, 1.0), (4, 0.2), (0, 0.1)])
def test_the_line_goes_through_the_quarter_and_the_median(in_flight: int, seconds: float) -> None:
    case = Case()
    curved(case)
    case.table.window("a").in_flight = in_flight
    found = case.expected("a")
    assert (found.state, found.in_flight) == ("trusted", in_flight)
    assert found.seconds == pytest.approx(seconds)


def test_loads_that_are_nearly_the_same_move_the_lower_point_to_the_floor() -> None:
    case = Case(anchor_gap_scale=16.0)  # a quarter of it is between the points
    curved(case)
    # From 1 request at 0.125 s to 8 at 0.6 s.
    case.table.window("a").in_flight = 15
    assert case.expected("a").seconds == pytest.approx(0.125 + 14 * 0.475 / 7)


def test_a_model_is_cold_then_seed_then_trusted() -> None:
    case = Case()
    case.observe("b", (0.5, 2), (1.0, 4), times=10)
    case.observe("a", (0.25, 0), times=9)
    assert (case.expected("a").state, case.scores()) == ("cold", [1.0, 1.0])
    case.observe("a", (0.25, 0))
    case.clock.advance(2)
    assert (case.expected("a").state, case.expected("a").seconds) == ("seed", 0.25)
    assert case.expected("b").state == "trusted"
    case.table.window("b").in_flight = 4
    assert case.scores() == [1.0, 0.0]


def test_exploration_holds_back_what_is_not_known_well() -> None:
    case = Case(exploration_rate=0.25)
    case.observe("b", (0.5, 2), (1.0, 4), times=10)
    found = [tuple(case.scores()) for _ in range(1000)]
    assert set(found) == {(1.0, 1.0), (0.0, 1.0)}
    assert 200 <= found.count((1.0, 1.0)) <= 300
    nobody = Case(exploration_rate=0.0001)
    assert nobody.scores() == [1.0, 1.0]
