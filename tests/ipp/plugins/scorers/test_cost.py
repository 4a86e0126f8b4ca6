"""``cost-scorer``: 1 less a model's share in the sum of prices."""

from __future__ import annotations

from typing import Any

from dataplane.plugin.base import PluginParams, TypedName
from ipp.interfaces.models import ServedModel
from ipp.plugins.scorers.cost import CostScorer

SCORER = CostScorer(TypedName("cost-scorer", "cost-scorer"), PluginParams(), None)  # type: ignore[arg-type]
ANY: Any = None


def test_scores_are_shares_in_the_sum() -> None:
    models = [
        ServedModel("a", input_price=0.5, output_price=0.5),
        ServedModel("b", input_price=3),
        ServedModel("c"),
    ]
    assert SCORER.score_models(ANY, models) == [0.75, 0.25, 1.0]


def test_models_that_are_all_free_are_all_best() -> None:
    assert SCORER.score_models(ANY, [ServedModel("a"), ServedModel("b")]) == [1.0, 1.0]


def test_a_single_model_has_a_half() -> None:
    assert SCORER.score_models(ANY, [ServedModel("a", input_price=9)]) == (0.5,)
