"""load-aware-scorer: an absolute scale from 0.5 (no queue) to 0 (threshold reached)."""

import pytest

from dataplane.config.problems import ConfigErrors
from epp.interfaces.endpoint import STALE_PENALTY, EndpointTable
from epp.plugins.scorers.load_aware import LoadAwareScorer
from tests.support.pool import make_plugin, make_request, make_table


def scores(table: EndpointTable, **parameters: int) -> list[float]:
    """Scores of all endpoints."""
    return make_plugin(LoadAwareScorer, table, parameters).score(make_request(), table.all()).tolist()


def test_the_score_falls_with_the_queue_and_ends_at_the_threshold():
    assert scores(make_table(5, waiting=[0, 32, 64, 128, 500])) == [0.5, 0.375, 0.25, 0.0, 0.0]


def test_the_threshold_can_be_set():
    assert scores(make_table(3, waiting=[0, 5, 10]), threshold=10) == [0.5, 0.25, 0.0]


def test_one_and_no_endpoints():
    assert scores(make_table(1, waiting=[64])) == [0.25]
    assert scores(make_table(0)) == []


def test_a_stale_endpoint_counts_as_more_than_the_longest_queue():
    table = make_table(2, waiting=[64, 0])
    table.fresh[1] = False
    table.stale = 1
    assert scores(table) == [0.25, 0.5 * (1 - (64 + STALE_PENALTY) / 128)]


def test_a_threshold_of_zero_is_refused():
    with pytest.raises(ConfigErrors, match=r"^parameters\.threshold: expected int >= 1$"):
        make_plugin(LoadAwareScorer, make_table(1), {"threshold": 0})
