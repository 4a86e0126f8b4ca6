"""endpoint-attribute-scorer: a number of the endpoint on a scale."""

from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.plugin.base import DataKey, Stability
from epp.plugins.scorers.endpoint_attribute import EndpointAttributeScorer
from tests.support.pool import make_plugin, make_request, make_table

HEAT = DataKey[float]("Heat", "thermometer")
ADAPTIVE = {"adaptiveRange": {}}


def parameters(kind: str, normalization: dict[str, Any], **others: Any) -> dict[str, Any]:
    algorithm = {"type": f"linear_{kind}_is_better", "normalization": normalization}
    return {"attributeKey": "Heat", "algorithm": algorithm, **others}


def scores(params: dict[str, Any], *heats: float | None) -> list[float]:
    table = make_table(len(heats))
    for endpoint, heat in zip(table.all().endpoints, heats, strict=True):
        table.annotate(endpoint, HEAT, heat)
    found: list[float] = (
        make_plugin(EndpointAttributeScorer, table, params).score(make_request(), table.all()).tolist()
    )
    return found


def fixed(low: float, high: float) -> dict[str, Any]:
    return {"fixedRange": {"min": low, "max": high}}


def test_a_fixed_range_is_linear_and_ends_at_its_ends():
    assert scores(parameters("lower", fixed(10, 30)), 0, 10, 15, 30, 99) == [1.0, 1.0, 0.75, 0.0, 0.0]
    assert scores(parameters("higher", fixed(10, 30)), 0, 10, 15, 30, 99) == [0.0, 0.0, 0.25, 1.0, 1.0]


def test_an_adaptive_range_spans_the_candidates():
    assert scores(parameters("lower", ADAPTIVE), 2, 4, 6) == [1.0, 0.5, 0.0]
    assert scores(parameters("higher", ADAPTIVE), -2, 0, 2) == [0.0, 0.5, 1.0]


def test_equal_numbers_on_an_adaptive_range_score_one():
    assert scores(parameters("lower", ADAPTIVE), 7, 7) == [1.0, 1.0]
    assert scores(parameters("higher", ADAPTIVE), 7, None) == [1.0, 0.0]


def test_endpoints_without_the_number_score_zero():
    assert scores(parameters("lower", ADAPTIVE), None, 2, 4) == [0.0, 1.0, 0.0]
    assert scores(parameters("lower", fixed(0, 10)), None, 5) == [0.0, 0.5]
    assert scores(parameters("lower", ADAPTIVE), None, None) == [0.0, 0.0]


def test_an_attribute_nobody_has_written_scores_zero():
    table = make_table(2)
    plugin = make_plugin(EndpointAttributeScorer, table, parameters("lower", ADAPTIVE))
    assert plugin.score(make_request(), table.all()).tolist() == [0.0, 0.0]


def test_the_producer_can_be_named():
    table = make_table(1)
    plugin = make_plugin(EndpointAttributeScorer, table, parameters("lower", ADAPTIVE, producer="p"))
    assert list(plugin.consumes) == [DataKey("Heat", "p")]
    assert plugin.info.stability is Stability.ALPHA


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (parameters("lower", {}), "give one of fixedRange and adaptiveRange"),
        (parameters("lower", {**ADAPTIVE, **fixed(0, 1)}), "give one of fixedRange and adaptiveRange"),
        (parameters("lower", fixed(1, 1)), "must be above min, which is 1"),
        (parameters("lower", fixed(float("nan"), 1)), "must be a finite number"),
        (parameters("lower", fixed(0, float("inf"))), "must be a finite number"),
        ({**parameters("lower", ADAPTIVE), "attributeKey": "a/b"}, "has a slash and no producer"),
    ],
)
def test_what_cannot_be_meant_is_refused(params: dict[str, Any], message: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(EndpointAttributeScorer, None, params)
    assert message in str(caught.value.errors[0])


def test_the_ends_of_the_floating_point_range_are_numbers_like_others():
    assert scores(parameters("higher", ADAPTIVE), -1.7e308, 0, 1.7e308) == [0.0, 0.5, 1.0]
    assert scores(parameters("lower", fixed(-1.7e308, 1.7e308)), 1.7e308, 0.0) == [0.0, 0.5]
    assert scores(parameters("higher", ADAPTIVE), 0.0, 5e-324) == [0.0, 1.0]


def test_what_is_not_finite_counts_as_missing():
    assert scores(parameters("higher", ADAPTIVE), float("inf"), 1.0, 2.0, float("-inf")) == [
        0.0,
        0.0,
        1.0,
        0.0,
    ]
    assert scores(parameters("lower", ADAPTIVE), float("inf"), float("nan")) == [0.0, 0.0]
