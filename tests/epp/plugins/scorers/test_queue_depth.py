"""queue-scorer: shorter queues score higher, small differences stay small."""

import pytest

from dataplane.config.problems import ConfigErrors
from epp.interfaces.endpoint import EndpointTable
from epp.plugins.scorers.queue_depth import QueueDepthScorer
from tests.support.pool import make_plugin, make_request, make_table


def scores(table: EndpointTable, **parameters: float) -> list[float]:
    """Scores of all endpoints."""
    return make_plugin(QueueDepthScorer, table, parameters).score(make_request(), table.all()).tolist()


def test_scores_fall_linearly_from_the_shortest_to_the_longest_queue():
    assert scores(make_table(3, waiting=[3, 0, 10])) == [0.7, 1.0, 0.0]


def test_a_difference_of_one_is_a_fifth_of_the_score():
    assert scores(make_table(2, waiting=[0, 1])) == [1.0, 0.8]


def test_without_min_spread_a_difference_of_one_is_everything():
    assert scores(make_table(2, waiting=[0, 1]), minSpread=0) == [1.0, 0.0]


def test_equal_queues_score_one():
    assert scores(make_table(3, waiting=[4, 4, 4])) == [1.0, 1.0, 1.0]
    assert scores(make_table(2, waiting=[4, 4]), minSpread=0) == [1.0, 1.0]


def test_one_endpoint_scores_one_and_none_scores_nothing():
    assert scores(make_table(1, waiting=[50])) == [1.0]
    assert scores(make_table(0)) == []


def test_requests_sent_since_the_scrape_count():
    table = make_table(2)
    table.book(table.all().endpoint(0))
    assert scores(table) == [0.8, 1.0]


def test_a_stale_endpoint_counts_as_more_than_the_longest_queue():
    table = make_table(3, waiting=[0, 5, 0])
    table.fresh[2] = False
    table.stale = 1
    assert scores(table) == [1.0, 0.5, 0.0]


def test_on_an_idle_pool_a_stale_endpoint_is_last():
    table = make_table(2)
    table.fresh[0] = False
    table.stale = 1
    assert scores(table) == [0.0, 1.0]


def test_a_burst_spreads_evenly():
    table = make_table(8)
    scorer = make_plugin(QueueDepthScorer, table)
    for _ in range(1000):
        best = scorer.score(make_request(), table.all()).argmax()
        table.book(table.all().endpoint(int(best)))
    assert table.inflight[:8].tolist() == [125.0] * 8


@pytest.mark.parametrize("value", [-1, "five", float("nan"), float("inf")])
def test_an_impossible_spread_is_refused(value: object):
    with pytest.raises(ConfigErrors, match=r"^parameters\.minSpread: expected float"):
        make_plugin(QueueDepthScorer, make_table(1), {"minSpread": value})
