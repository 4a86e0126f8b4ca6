"""multicluster-kv-cache-utilization-scorer: room in the caches of pools."""

from dataplane.plugin.base import Stability
from epp.interfaces.attributes import POOL_KV_CACHE_UTILIZATION
from epp.plugins.scorers.multicluster_kv_cache_utilization import MulticlusterKvCacheUtilizationScorer
from tests.support.pool import make_plugin, make_request, make_table


def test_the_free_share_is_the_score_and_unknown_is_zero():
    table = make_table(5)
    values = (0.0, 0.25, 1.0, 1.5, None)
    for endpoint, usage in zip(table.all().endpoints, values, strict=True):
        table.annotate(endpoint, POOL_KV_CACHE_UTILIZATION.by("extractor"), usage)
    plugin = make_plugin(MulticlusterKvCacheUtilizationScorer, table)
    assert plugin.score(make_request(), table.all()).tolist() == [1.0, 0.75, 0.0, 0.0, 0.0]
    assert list(plugin.consumes) == [POOL_KV_CACHE_UTILIZATION]
    assert plugin.info.stability is Stability.ALPHA


def test_before_anything_is_known_every_score_is_zero():
    table = make_table(2)
    plugin = make_plugin(MulticlusterKvCacheUtilizationScorer, table)
    assert plugin.score(make_request(), table.all()).tolist() == [0.0, 0.0]
