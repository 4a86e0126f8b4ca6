"""running-requests-size-scorer: fewer running requests score higher."""

from epp.interfaces.endpoint import EndpointTable
from epp.plugins.scorers.running_requests import RunningRequestsScorer
from tests.support.pool import make_plugin, make_request, make_table


def scores(table: EndpointTable, **parameters: float) -> list[float]:
    """Scores of all endpoints."""
    return make_plugin(RunningRequestsScorer, table, parameters).score(make_request(), table.all()).tolist()


def test_scores_fall_linearly_from_the_least_to_the_most_busy():
    assert scores(make_table(3, running=[30, 20, 40])) == [0.5, 1.0, 0.0]


def test_small_differences_stay_small_unless_asked_otherwise():
    assert scores(make_table(2, running=[20, 21])) == [1.0, 0.8]
    assert scores(make_table(2, running=[20, 21]), minSpread=0) == [1.0, 0.0]


def test_equal_one_and_no_endpoints():
    assert scores(make_table(2, running=[7, 7])) == [1.0, 1.0]
    assert scores(make_table(1, running=[7])) == [1.0]
    assert scores(make_table(0)) == []


def test_a_stale_endpoint_counts_as_the_busiest_fresh_one():
    table = make_table(3, running=[0, 10, 0])
    table.fresh[2] = False
    table.stale = 1
    assert scores(table) == [1.0, 0.0, 0.0]


def test_without_any_fresh_endpoint_all_are_equal():
    table = make_table(2, fresh=False, running=[3, 9])
    assert scores(table) == [1.0, 1.0]
