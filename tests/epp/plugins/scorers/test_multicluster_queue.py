"""multicluster-queue-scorer: short queues of pools."""

import pytest

from dataplane.plugin.base import Stability
from epp.interfaces.attributes import POOL_QUEUE_SIZE
from epp.plugins.scorers.multicluster_queue import MulticlusterQueueScorer
from tests.support.pool import make_plugin, make_request, make_table


def scores(*lengths: float | None, **parameters: float) -> list[float]:
    table = make_table(len(lengths))
    for endpoint, length in zip(table.all().endpoints, lengths, strict=True):
        table.annotate(endpoint, POOL_QUEUE_SIZE.by("extractor"), length)
    plugin = make_plugin(MulticlusterQueueScorer, table, parameters)
    found: list[float] = plugin.score(make_request(), table.all()).tolist()
    return found


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((0, 2, 4), [1.0, 0.5, 0.0]),
        ((7, 7), [1.0, 1.0]),
        ((0, 0.5), [1.0, 0.5]),
        ((None, 2, 4), [0.0, 1.0, 0.0]),
        ((None, None), [0.0, 0.0]),
    ],
)
def test_the_shortest_scores_one_and_unknown_ones_zero(
    lengths: tuple[float | None, ...], expected: list[float]
):
    assert scores(*lengths) == expected


def test_the_least_spread_can_be_set():
    assert scores(0, 0.5, minSpread=0) == [1.0, 0.0]
    assert scores(0, 5, minSpread=10) == [1.0, 0.5]


def test_it_reads_the_pools_queue():
    plugin = make_plugin(MulticlusterQueueScorer)
    assert (list(plugin.consumes), plugin.info.stability) == ([POOL_QUEUE_SIZE], Stability.ALPHA)
