"""``load-aware-ttft-scorer``: the shortest expected wait is best."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from dataplane.plugin.base import TypedName
from ipp.interfaces.models import ModelData, ServedModel
from ipp.plugins.scorers.load_aware_ttft import LoadAwareTtftScorer, LoadAwareTtftScorerParams
from ipp.ttft import Observation, TtftTable
from tests.support.clock import ManualClock

ANY: Any = None
A, B = ServedModel("a"), ServedModel("b")


class Case:
    """A scorer with its table."""

    def __init__(self, rate: float = 0.0) -> None:
        self.clock = ManualClock()
        handle: Any = SimpleNamespace(rng=random.Random(3), clock=self.clock, data=ModelData())
        params = LoadAwareTtftScorerParams(exploration_rate=rate)
        self.scorer = LoadAwareTtftScorer(TypedName("s", "s"), params, handle)
        self.table = handle.data.table(TtftTable)

    def observe(self, model: str, seconds: float, in_flight: int, times: int = 10) -> None:
        window = self.table.window(model)
        for _ in range(times):
            window.observe(Observation(self.clock.now, seconds, in_flight))

    def scores(self) -> list[float]:
        return list(self.scorer.score_models(ANY, [A, B]))


def test_the_quicker_model_is_best() -> None:
    case = Case()
    case.observe("a", 0.2, 0)
    case.observe("b", 0.8, 0)
    assert case.scores() == [1.0, 0.25]


def test_load_makes_a_model_slower_than_an_idle_one() -> None:
    case = Case()
    case.observe("a", 0.1, 0, times=30)
    case.observe("a", 0.5, 4, times=70)
    case.observe("b", 0.5, 0)
    assert case.scores() == [1.0, 0.2]
    case.table.window("a").in_flight = 9
    assert case.scores() == [0.5, 1.0]


def test_an_unknown_model_is_tried_by_as_many_requests_as_needed() -> None:
    case = Case()
    case.observe("a", 0.2, 0)
    assert case.scores() == [0.0, 1.0]
    case.table.window("b").in_flight = 10
    assert case.scores() == [1.0, 0.0]


def test_models_of_which_nothing_is_known_share_by_load() -> None:
    case = Case()
    case.table.window("a").in_flight = 10
    case.table.window("b").in_flight = 19
    assert case.scores() == [1 / 11, 1 / 20]


def test_an_idle_model_that_was_not_asked_lately_is_expected_at_its_floor() -> None:
    case = Case()
    case.observe("a", 0.1, 0)
    case.clock.advance(600)
    case.observe("b", 0.4, 0)
    assert case.scores() == [1.0, 0.25]


def test_exploration_tries_what_was_not_seen_lately() -> None:
    case = Case(rate=1.0)
    case.observe("a", 0.9, 0)
    case.clock.advance(600)
    case.observe("b", 0.4, 0)
    assert case.scores() == [1.0, 0.0]
