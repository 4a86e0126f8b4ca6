"""``queue-ttft-scorer``: expected times, by where they lie between the shortest and the longest."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from dataplane.plugin.base import TypedName
from ipp.interfaces.models import ModelData, ServedModel
from ipp.interfaces.selection import ScoreTrace
from ipp.plugins.scorers.queue_ttft import QueueTtftScorer, QueueTtftScorerParams
from ipp.plugins.ttft_scoring import Expectations
from ipp.ttft import Observation, TtftTable
from tests.support.clock import ManualClock

MODELS = [ServedModel(name) for name in "abc"]


class Case:
    """A scorer with its table."""

    def __init__(self, rate: float = 0.0) -> None:
        self.clock = ManualClock()
        handle: Any = SimpleNamespace(rng=random.Random(3), clock=self.clock, data=ModelData())
        params = QueueTtftScorerParams(exploration_rate=rate)
        self.scorer = QueueTtftScorer(TypedName("s", "s"), params, handle)
        self.table = handle.data.table(TtftTable)
        self.trace = handle.data.table(ScoreTrace)
        self.request: Any = SimpleNamespace(state={})

    def observe(self, model: str, seconds: float, in_flight: int = 0, times: int = 10) -> None:
        window = self.table.window(model)
        for _ in range(times):
            window.observe(Observation(self.clock.now, seconds, in_flight))

    def scores(self) -> list[float]:
        return list(self.scorer.score_models(self.request, MODELS))


def test_scores_are_in_proportion_between_the_quickest_and_the_slowest() -> None:
    case = Case()
    for model, seconds in zip("abc", (0.25, 0.75, 1.25), strict=True):
        case.observe(model, seconds)
    assert case.scores() == [1.0, 0.5, 0.0]


def test_an_unknown_model_is_best_idle_and_in_the_middle_busy() -> None:
    case = Case()
    case.observe("a", 0.5)
    case.observe("b", 1.0)
    assert case.scores() == [1.0, 0.0, 1.0]
    case.table.window("c").in_flight = 1
    assert case.scores() == [1.0, 0.0, 0.5]


def test_models_of_which_nothing_is_known_share_by_load() -> None:
    case = Case()
    case.table.window("a").in_flight = 2
    case.table.window("b").in_flight = 1
    assert case.scores() == [0.0, 0.5, 1.0]


def test_exploration_holds_unknown_models_back_but_for_its_share() -> None:
    case = Case(rate=0.25)
    case.observe("a", 0.5)
    case.observe("b", 1.0)
    found = [tuple(case.scores()) for _ in range(1000)]
    assert set(found) == {(1.0, 0.0, 0.0), (1.0, 0.0, 1.0)}
    assert 200 <= found.count((1.0, 0.0, 1.0)) <= 300


def test_what_was_expected_is_left_for_those_who_ask() -> None:
    case = Case(rate=1e-9)
    case.observe("a", 0.5)
    case.observe("b", 0.25, times=3)
    case.scores()
    assert case.request.state == {}
    case.trace.is_wanted = True
    case.scores()
    told = case.request.state[Expectations]
    assert {name: (each.state, each.seconds, each.is_suppressed) for name, each in told.items()} == {
        "a": ("trusted", 0.5, False),
        "b": ("cold", 0.0, True),
        "c": ("cold", 0.0, True),
    }
