"""topology-affinity-filter: near enough to the earlier stage, or everybody."""

import pytest

from epp.graph import load_graph
from epp.interfaces.attributes import PEER_ENDPOINT, TOPOLOGY, Topology
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.filters.topology_affinity import TopologyAffinityFilter
from tests.support.labelled import names
from tests.support.pool import make_plugin, make_request, make_table

PLACES = (
    Topology("h1", "r1", "z1", "g1"),
    Topology("h2", "r1", "z1", "g1"),
    Topology("h3", "r2", "z1", "g1"),
    Topology("h4", "r3", "z2", "g1"),
    None,
)


def pool() -> EndpointTable:
    table = make_table(len(PLACES))
    for endpoint, place in zip(table.all().endpoints, PLACES, strict=True):
        table.annotate(endpoint, TOPOLOGY.by("topology-extractor"), place)
    return table


@pytest.mark.parametrize(
    ("level", "kept"),
    [
        ("host", ["e0"]),
        ("rack", ["e0", "e1"]),
        ("zone", ["e0", "e1", "e2"]),
        ("region", ["e0", "e1", "e2", "e3"]),
    ],
)
def test_those_together_at_the_level_or_nearer_stay(level: str, kept: list[str]):
    table, request = pool(), make_request()
    request.put(PEER_ENDPOINT, table.all().endpoint(0))
    plugin = make_plugin(TopologyAffinityFilter, table, {"minAffinity": level})
    assert names(plugin.filter(request, table.all())) == kept


def test_everybody_stays_without_a_peer_and_when_nobody_is_near_enough():
    table, request = pool(), make_request()
    plugin = make_plugin(TopologyAffinityFilter, table)
    assert plugin.filter(request, table.all()) is table.all()
    far = table.all().where(table.all().slots > 0)
    request.put(PEER_ENDPOINT, table.all().endpoint(0))
    assert plugin.filter(request, far) is far
    request.put(PEER_ENDPOINT, table.all().endpoint(4))
    assert plugin.filter(request, table.all()) is table.all()


def test_the_reason_tells_what_there_is_in_common():
    table, request = pool(), make_request()
    request.put(PEER_ENDPOINT, table.all().endpoint(0))
    plugin = make_plugin(TopologyAffinityFilter, table)
    assert [plugin.reason(request, table.all(), table.all().endpoint(i)) for i in (1, 3, 4)] == [
        "has the rack only in common with the earlier stage",
        "has the region only in common with the earlier stage",
        "has nothing in common with the earlier stage",
    ]


@pytest.mark.parametrize("parameters", ["{}", "{topologyProducerName: topology-extractor}"])
def test_the_default_extractor_is_created(parameters: str):
    text = f"""
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{{type: topology-affinity-filter, parameters: {parameters}}}]
"""
    graph = load_graph(text, Handle(EndpointTable()), allow_experimental=True)
    assert [extractor.name.name for extractor in graph.endpoint_extractors] == ["topology-extractor"]
    assert graph.endpoint_attributes == (TOPOLOGY.by("topology-extractor"),)
