"""topology-affinity-scorer: near is good."""

from dataplane.plugin.base import Stability
from epp.interfaces.attributes import PEER_ENDPOINT, TOPOLOGY, Topology
from epp.plugins.scorers.topology_affinity import TopologyAffinityScorer
from tests.support.pool import make_plugin, make_request, make_table

PLACES = (
    Topology("h1", "r1", "z1", "g1"),
    Topology("h2", "r1", "z1", "g1"),
    Topology("h3", "r2", "z1", "g1"),
    Topology("h4", "r3", "z2", "g1"),
    Topology("h5", "r4", "z3", "g2"),
    None,
)


def test_scores_fall_with_the_level():
    table, request = make_table(len(PLACES)), make_request()
    for endpoint, place in zip(table.all().endpoints, PLACES, strict=True):
        table.annotate(endpoint, TOPOLOGY.by("mine"), place)
    plugin = make_plugin(TopologyAffinityScorer, table, {"topologyProducerName": "mine"})
    assert list(plugin.consumes) == [TOPOLOGY.by("mine")]
    assert plugin.info.stability is Stability.ALPHA
    assert plugin.score(request, table.all()).tolist() == [0.0] * 6
    request.put(PEER_ENDPOINT, table.all().endpoint(0))
    assert plugin.score(request, table.all()).tolist() == [1.0, 0.2, 0.05, 0.02, 0.0, 0.0]
