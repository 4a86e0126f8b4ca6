"""kv-cache-utilization-scorer: room in the KV cache is the score."""

from epp.interfaces.endpoint import EndpointTable
from epp.plugins.scorers.kv_cache_utilization import KvCacheUtilizationScorer
from tests.support.pool import make_plugin, make_request, make_table


def scores(table: EndpointTable) -> list[float]:
    """Scores of all endpoints."""
    return make_plugin(KvCacheUtilizationScorer, table).score(make_request(), table.all()).tolist()


def test_the_score_is_the_free_share():
    assert scores(make_table(3, kv_usage=[0.25, 0.0, 1.0])) == [0.75, 1.0, 0.0]


def test_equal_one_and_no_endpoints():
    assert scores(make_table(2, kv_usage=[0.5, 0.5])) == [0.5, 0.5]
    assert scores(make_table(1)) == [1.0]
    assert scores(make_table(0)) == []


def test_a_stale_endpoint_counts_as_the_fullest_fresh_one():
    table = make_table(3, kv_usage=[0.25, 0.75, 0.0])
    table.fresh[2] = False
    table.stale = 1
    assert scores(table) == [0.75, 0.25, 0.25]
