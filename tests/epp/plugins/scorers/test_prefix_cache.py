"""prefix-cache-scorer: the matched share of the prompt is the score."""

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from epp.interfaces.attributes import PREFIX_MATCH, PrefixMatch
from epp.plugins.scorers.prefix_cache import PrefixCacheScorer
from tests.support.pool import make_plugin, make_request, make_table


def scores(matched: list[float], total: int, **parameters: float) -> list[float]:
    """Scores for matches of blocks of 16 tokens."""
    table, request = make_table(len(matched)), make_request()
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array(matched), total, 16))
    return make_plugin(PrefixCacheScorer, table, parameters).score(request, table.all()).tolist()


def test_the_score_is_the_matched_share():
    assert scores([0, 5, 10], 10) == [0.0, 0.5, 1.0]


def test_part_of_the_score_may_depend_on_the_matched_length():
    assert scores([4, 8], 8, matchLengthWeight=0.5, matchLengthScaleTokens=128) == [
        0.5 * 0.5 + 0.5 * 0.25,
        1.0,
    ]
    assert scores([8, 16], 16, matchLengthWeight=1, matchLengthScaleTokens=64) == [1.0, 1.0]


def test_a_prompt_without_blocks_prefers_nobody():
    assert scores([0, 0], 0) == [0.0, 0.0]


def test_without_match_information_nobody_is_preferred():
    table = make_table(2)
    scorer = make_plugin(PrefixCacheScorer, table)
    assert scorer.score(make_request(), table.all()).tolist() == [0.0, 0.0]


def test_equal_one_and_no_endpoints():
    assert scores([3, 3], 6) == [0.5, 0.5]
    assert scores([3], 6) == [0.5]
    assert scores([], 6) == []


def test_matches_are_read_for_candidates_that_filters_left():
    table, request = make_table(3), make_request()
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array([1.0, 2.0, 4.0]), 4, 16))
    narrowed = table.all().where(np.array([False, True, True]))
    assert make_plugin(PrefixCacheScorer, table).score(request, narrowed).tolist() == [0.5, 1.0]


def test_a_named_producer_is_read_instead_of_the_default_one():
    scorer = make_plugin(PrefixCacheScorer, None, {"prefixMatchInfoProducerName": "mine"})
    assert list(scorer.consumes) == [PREFIX_MATCH.by("mine")]
    assert list(make_plugin(PrefixCacheScorer).consumes) == [PREFIX_MATCH]


@pytest.mark.parametrize(
    "parameters", [{"matchLengthWeight": 1.5}, {"matchLengthScaleTokens": 0}, {"lruSize": 5}]
)
def test_impossible_parameters_are_refused(parameters: dict[str, float]):
    with pytest.raises(ConfigErrors):
        make_plugin(PrefixCacheScorer, None, parameters)
