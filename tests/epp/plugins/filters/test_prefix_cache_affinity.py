"""prefix-cache-affinity-filter: conversations stick to the endpoints that hold them, within reason."""

from typing import Any

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from epp.interfaces.attributes import INFLIGHT_LOAD, PREFIX_MATCH, InflightLoad, PrefixMatch
from epp.plugins.filters.prefix_cache_affinity import PrefixCacheAffinityFilter
from tests.support.labelled import names
from tests.support.pool import make_plugin, make_request, make_table

ALL = ["e0", "e1", "e2"]


def left(matched: list[float], total: int, tokens: list[float] | None = None, **parameters: Any) -> list[str]:
    """What stays of endpoints with these matched blocks and tokens in flight."""
    table, request = make_table(len(matched)), make_request()
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array(matched), total, 16))
    if tokens is not None:
        request.put(INFLIGHT_LOAD, InflightLoad(table.all(), np.zeros(len(matched)), np.array(tokens)))
    plugin = make_plugin(PrefixCacheAffinityFilter, table, parameters)
    return names(plugin.filter(request, table.all()))


def test_endpoints_that_hold_the_threshold_share_are_kept():
    assert left([10, 8, 7], 10) == ["e0", "e1"]
    assert left([10, 8, 7], 10, affinityThreshold=0.99) == ["e0"]
    assert left([11, 12, 10], 20, affinityThreshold=0.55) == ["e0", "e1"]


def test_everybody_is_kept_when_nobody_is_sticky():
    assert left([0, 3, 7], 10) == ALL
    assert left([10, 10, 10], 10) == ALL


def test_a_threshold_of_zero_turns_the_filter_off():
    assert left([10, 0, 0], 10, affinityThreshold=0) == ALL
    assert left([10, 0, 0], 10, affinityThreshold=-1) == ALL


def test_one_endpoint_or_none_is_not_narrowed():
    assert left([0], 10) == ["e0"]
    assert left([], 10) == []


def test_a_prompt_without_blocks_or_matches_narrows_nothing():
    assert left([0, 0, 0], 0) == ALL
    table = make_table(2)
    assert make_plugin(PrefixCacheAffinityFilter, table).filter(make_request(), table.all()) is table.all()


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([2000, 0, 0], ["e0"]),
        ([2001, 0, 0], ALL),
        ([3001, 1000, 5000], ALL),
        ([0, 9000, 9000], ["e0"]),
    ],
)
def test_the_affinity_breaks_when_waiting_costs_more_than_the_penalty(
    tokens: list[float], expected: list[str]
):
    limits = {"maxTTFTPenaltyMs": 2000, "peakPrefillThroughput": 1000}
    assert left([10, 0, 0], 10, tokens, **limits) == expected


def test_the_best_of_each_side_is_compared():
    limits = {"maxTTFTPenaltyMs": 1000, "peakPrefillThroughput": 1000}
    assert left([10, 10, 0], 10, [9000, 500, 0], **limits) == ["e0", "e1"]
    assert left([10, 10, 0], 10, [9000, 1500, 0], **limits) == ALL


def test_the_default_penalty_is_eighteen_seconds_of_prefill():
    at_the_limit = 15_928.0 * 18
    assert left([10, 0, 0], 10, [at_the_limit, 0, 0]) == ["e0"]
    assert left([10, 0, 0], 10, [at_the_limit + 16, 0, 0]) == ALL


def test_a_penalty_of_zero_ignores_the_load():
    assert left([10, 0, 0], 10, [1e12, 0, 0], maxTTFTPenaltyMs=0) == ["e0"]
    plugin = make_plugin(PrefixCacheAffinityFilter, None, {"maxTTFTPenaltyMs": 0})
    assert list(plugin.consumes) == [PREFIX_MATCH]


def test_without_load_information_affinity_holds():
    assert left([10, 0, 0], 10, None) == ["e0"]


def test_a_share_of_requests_explores():
    table, request = make_table(2), make_request()
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array([10.0, 0.0]), 10, 16))

    def explored(probability: float) -> int:
        parameters = {"explorationProbability": probability}
        plugin = make_plugin(PrefixCacheAffinityFilter, table, parameters, seed=1)
        return sum(len(plugin.filter(request, table.all())) == 2 for _ in range(1000))

    assert explored(0) == 0
    assert 200 < explored(0.25) < 300
    assert explored(1) == 1000


def test_values_are_read_for_candidates_that_filters_left():
    table, request = make_table(3), make_request()
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array([10.0, 0.0, 9.0]), 10, 16))
    request.put(INFLIGHT_LOAD, InflightLoad(table.all(), np.zeros(3), np.array([0.0, 0.0, 2001.0])))
    narrowed = table.all().where(np.array([False, True, True]))
    limits = {"maxTTFTPenaltyMs": 2000, "peakPrefillThroughput": 1000}
    assert names(make_plugin(PrefixCacheAffinityFilter, table).filter(request, narrowed)) == ["e2"]
    assert make_plugin(PrefixCacheAffinityFilter, table, limits).filter(request, narrowed) is narrowed


def test_named_producers_are_read_instead_of_the_default_ones():
    parameters = {"prefixMatchInfoProducerName": "mine", "inFlightLoadProducerName": "yours"}
    plugin = make_plugin(PrefixCacheAffinityFilter, None, parameters)
    assert list(plugin.consumes) == [PREFIX_MATCH.by("mine"), INFLIGHT_LOAD.by("yours")]
    assert list(make_plugin(PrefixCacheAffinityFilter).consumes) == [PREFIX_MATCH, INFLIGHT_LOAD]


def test_the_name_of_the_concept_pages_is_accepted_with_a_warning():
    assert left([10, 6, 5], 10, stickinessThreshold=0.6) == ["e0", "e1"]
    plugin = make_plugin(PrefixCacheAffinityFilter, None, {"stickinessThreshold": 0.6})
    assert plugin.warnings == ["stickinessThreshold is accepted for affinityThreshold; use that name"]
    assert make_plugin(PrefixCacheAffinityFilter).warnings == []


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        (
            {"ttftSource": "latencyPredictor"},
            "ttftSource: latencyPredictor is not in this build; use prefillThroughput, the default",
        ),
        (
            {"ttftSource": "guess"},
            "ttftSource: must be one of prefillThroughput, latencyPredictor; got 'guess'",
        ),
        (
            {"affinityThreshold": 0.8, "stickinessThreshold": 0.8},
            "stickinessThreshold: is another name of affinityThreshold; remove one of them",
        ),
        ({"affinityThreshold": 1.5}, "affinityThreshold: expected float <= 1.0"),
        ({"explorationProbability": 2}, "explorationProbability: expected float <= 1.0"),
        ({"maxTTFTPenaltyMs": -1}, "maxTTFTPenaltyMs: expected float >= 0.0"),
        ({"peakPrefillThroughput": 0}, "peakPrefillThroughput: expected float > 0.0"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any], problem: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(PrefixCacheAffinityFilter, None, parameters)
    assert [str(error) for error in caught.value.errors] == [f"parameters.{problem}"]


def test_a_producer_of_times_that_is_not_asked_is_named():
    plugin = make_plugin(PrefixCacheAffinityFilter, None, {"latencyPredictionInfoProducerName": "p"})
    assert plugin.warnings == [
        "latencyPredictionInfoProducerName has no effect: times come from prefillThroughput"
    ]


@pytest.mark.parametrize(
    ("matched", "tokens", "expected"),
    [
        ([9, 9, 0], [0, 0, 0], ["e0"]),
        ([9, 10, 0], [0, 0, 0], ["e1"]),
        ([9, 9, 0], [1000, 0, 0], ["e0"]),
        ([9, 9, 0], [1001, 0, 0], ["e1"]),
        ([9, 9, 0], [1500, 400, 0], ["e1"]),
        ([9, 9, 9], [2000, 1000, 1000], ["e0"]),
        ([9, 9, 9], [2001, 1000, 1000], ["e1"]),
        ([9, 0, 0], [5000, 0, 0], ["e0"]),
        ([0, 0, 0], [0, 0, 0], ALL),
        ([9, 9, 0], [9000, 9000, 0], ALL),
    ],
)
def test_a_prefix_on_several_endpoints_goes_back_to_one_that_is_hardly_slower(
    matched: list[float], tokens: list[float], expected: list[str]
):
    assert (
        left(matched, 10, tokens, consolidateWithinMs=500, peakPrefillThroughput=2000, maxTTFTPenaltyMs=4000)
        == expected
    )


def test_consolidation_without_a_limit_of_stickiness_reads_the_load():
    plugin = make_plugin(PrefixCacheAffinityFilter, None, {"maxTTFTPenaltyMs": 0, "consolidateWithinMs": 1})
    assert INFLIGHT_LOAD in plugin.consumes
    assert left([9, 9, 0], 10, [9000, 9000, 0], maxTTFTPenaltyMs=0, consolidateWithinMs=1) == ["e0"]
    assert left([9, 9, 0], 10, None, consolidateWithinMs=1) == ["e0", "e1"]


def test_an_endpoint_left_out_for_the_one_that_is_kept_is_told_so():
    table, request = make_table(2), make_request()
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array([9.0, 9.0]), 10, 16))
    plugin = make_plugin(PrefixCacheAffinityFilter, table, {"consolidateWithinMs": 5})
    reason = plugin.reason(request, table.all(), table.all().endpoints[1])
    assert reason == "holds 90% of the prompt, which is gathered on one endpoint while it can carry it"
