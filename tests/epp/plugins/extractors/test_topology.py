"""Where an endpoint runs, from its labels."""

from dataplane.plugin.base import Stability
from epp.interfaces.attributes import TOPOLOGY, Topology
from epp.interfaces.data_layer import EndpointExtractor
from epp.interfaces.endpoint import EndpointSpec
from epp.plugins.extractors.topology import TopologyExtractor
from tests.support.pool import make_plugin

KEY = TOPOLOGY.by("topology-extractor")


def spec(**labels: str) -> EndpointSpec:
    return EndpointSpec("a", "default", "10.0.0.1", 8000, labels)


def test_the_usual_labels_are_read():
    plugin = make_plugin(TopologyExtractor)
    assert isinstance(plugin, EndpointExtractor)
    assert list(plugin.produces) == [KEY]
    assert plugin.info.stability is Stability.ALPHA
    labels = {
        "kubernetes.io/hostname": "h",
        "topology.kubernetes.io/rack": "r",
        "topology.kubernetes.io/zone": "z",
        "topology.kubernetes.io/region": "g",
    }
    assert plugin.extract(spec(**labels)) == {KEY: Topology("h", "r", "z", "g")}
    assert plugin.extract(spec(**{"topology.kubernetes.io/zone": "z"})) == {KEY: Topology(zone="z")}


def test_an_endpoint_without_any_has_no_topology():
    assert make_plugin(TopologyExtractor).extract(spec(other="x")) == {KEY: None}


def test_labels_can_be_named_and_left_out():
    plugin = make_plugin(TopologyExtractor, None, {"hostname": "host", "rack": ""}, name="mine")
    assert plugin.extract(spec(**{"host": "h", "": "r"})) == {TOPOLOGY.by("mine"): Topology("h")}
