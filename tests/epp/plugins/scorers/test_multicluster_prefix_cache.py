"""multicluster-prefix-cache-scorer: the share of the prompt that a cluster holds."""

import numpy as np

from dataplane.plugin.base import Stability
from epp.interfaces.attributes import PREFIX_MATCH, PrefixMatch
from epp.plugins.scorers.multicluster_prefix_cache import MulticlusterPrefixCacheScorer
from tests.support.pool import make_plugin, make_request, make_table


def test_the_score_is_the_matched_share():
    table = make_table(3)
    scorer = make_plugin(MulticlusterPrefixCacheScorer, table)
    request = make_request()
    assert scorer.score(request, table.all()).tolist() == [0.0, 0.0, 0.0]
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array([4.0, 1.0, 0.0]), 4, 64))
    assert scorer.score(request, table.all()).tolist() == [1.0, 0.25, 0.0]


def test_the_plugin_is_experimental():
    assert MulticlusterPrefixCacheScorer.info.stability is Stability.ALPHA
