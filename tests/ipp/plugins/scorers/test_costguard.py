"""``costguard``: models are ranked by what their answers did cost."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

from dataplane.plugin.base import TypedName
from ipp.costs import CostLimits, CostTable
from ipp.interfaces.models import ModelData, ServedModel
from ipp.plugins.scorers.costguard import Costguard, CostguardParams, answers_needed
from tests.support.clock import ManualClock
from tests.support.processors import pipeline_of
from tests.support.served_models import selecting

ANY: Any = None
MODELS = [ServedModel(name) for name in "abc"]


class Case:
    """A scorer with its table."""

    def __init__(self, **params: Any) -> None:
        self.clock = ManualClock()
        handle: Any = SimpleNamespace(rng=random.Random(3), clock=self.clock, data=ModelData())
        self.scorer = Costguard(TypedName("c", "c"), CostguardParams(**{"epsilon": 0.0, **params}), handle)
        self.table = handle.data.table(CostTable)
        self.table.limits = CostLimits(flush_s=0.0)

    def cost(self, model: str, *dollars: float) -> None:
        for each in dollars:
            self.table.add(model, each, self.clock.now)

    def scores(self) -> list[float]:
        return list(self.scorer.score_models(ANY, MODELS))


def test_a_model_is_known_from_as_many_answers_on_as_the_margin_needs() -> None:
    assert answers_needed(0.95, 0.03) == 203
    assert answers_needed(0.5, 0.1) == 97
    case = Case()
    for model, dollars in zip("abc", (1.0, 2.0, 3.0), strict=True):
        case.cost(model, *[dollars] * 202)
    assert case.scores() == [0.5, 0.5, 0.5]
    for model, dollars in zip("ab", (1.0, 2.0), strict=True):
        case.cost(model, dollars)
    # Ranks 2 and 4, median 3, deviation 1; nothing is said of c.
    assert case.scores() == [1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1)), 0.5]


def test_the_rank_is_the_mean_of_the_body_and_that_of_the_tail() -> None:
    case = Case(alpha=0.5, percentile_margin_error=0.5, lambda_=2.0)  # 4 answers suffice
    case.cost("a", 1, 1, 3, 5)  # 1 + 2 * 4 = 9
    case.cost("b", 2, 2, 2, 2)  # 2 + 2 * 2 = 6
    case.cost("c", 0, 0, 1, 2)  # 0 + 2 * 1.5 = 3
    spread = math.sqrt(6)
    assert case.scores() == [1 / (1 + math.exp(3 / spread)), 0.5, 1 / (1 + math.exp(-3 / spread))]


def test_models_that_cost_the_same_score_the_same() -> None:
    case = Case(percentile_margin_error=0.5)
    for model in "abc":
        case.cost(model, 0.0, 0.0)
    assert case.scores() == [0.5, 0.5, 0.5]


def test_a_share_of_requests_tries_a_model_that_is_not_known() -> None:
    case = Case(epsilon=1.0, percentile_margin_error=0.5)
    case.cost("a", 1.0)
    case.cost("c", 1.0)
    assert {tuple(case.scores()) for _ in range(20)} == {(0.5, 1.0, 0.5)}
    case.cost("b", 1.0)
    assert {tuple(case.scores()) for _ in range(40)} == {(1.0, 0.5, 0.5), (0.5, 1.0, 0.5), (0.5, 0.5, 1.0)}
    seldom = Case(epsilon=0.1)
    tried = sum(1.0 in seldom.scores() for _ in range(2000))
    assert 160 <= tried <= 240


def test_a_window_that_is_over_says_nothing() -> None:
    case = Case(percentile_margin_error=0.5)
    case.table.limits = CostLimits(window_s=60.0)
    case.cost("a", 1.0)
    case.cost("b", 2.0)
    assert case.scores() != [0.5, 0.5, 0.5]
    case.clock.advance(60)
    assert case.scores() == [0.5, 0.5, 0.5]


def test_what_follows_from_costs_is_used_for_a_while() -> None:
    case = Case(percentile_margin_error=0.5)
    case.table.limits = CostLimits(flush_s=5.0)
    case.cost("a", 1.0)
    case.cost("b", 2.0)
    before = case.scores()
    case.cost("a", 9.0)
    assert case.scores() == before
    case.clock.advance(5)
    assert case.scores() == [1 - before[0], 1 - before[1], 0.5]


def test_the_window_belongs_to_the_extractor(tmp_path: Any) -> None:
    guard = {"type": "costguard", "parameters": {"windowDuration": "30m", "lambda": 2}}
    config = selecting(tmp_path, guard, weights={"costguard": 1}, extractors=["model-cost-extractor"])
    pipeline = pipeline_of(config)
    assert pipeline.warnings == (
        "plugin 'costguard': windowDuration has no effect here; set it on the model-cost-extractor",
    )
