"""multicluster-file-discovery: ways into clusters may be host names."""

from pathlib import Path

from dataplane.plugin.base import Stability
from epp.interfaces.data_layer import EndpointDiscovery
from epp.plugins.discovery.file import FileDiscovery
from epp.plugins.discovery.multicluster_file import MulticlusterFileDiscovery
from epp.plugins.endpoint_file import read_endpoint_file
from tests.support.pool import make_plugin

TEXT = """
endpoints:
- name: east
  address: gateway.east.example
  port: "443"
  labels: {metricsAddress: epp.east.example, metricsPort: "9090"}
- {name: west, address: 10.0.0.2, port: "443"}
- {name: bad, address: "not a name"}
"""


def test_host_names_stand_beside_addresses(tmp_path: Path):
    path = tmp_path / "clusters.yaml"
    path.write_text(TEXT)
    file = read_endpoint_file(str(path), with_host_names=True)
    assert file.host_names() == {"gateway.east.example"}
    found = file.endpoints({"gateway.east.example": ("10.1.0.1", "10.1.0.2")}.__getitem__)
    assert [(spec.name, spec.key) for spec in found.endpoints] == [
        ("east-10.1.0.1", "10.1.0.1:443"),
        ("east-10.1.0.2", "10.1.0.2:443"),
        ("west", "10.0.0.2:443"),
    ]
    assert found.endpoints[0].labels == {"metricsAddress": "epp.east.example", "metricsPort": "9090"}
    assert found.problems == [
        f"{path}: endpoints[2].address: 'not a name' is not an IPv4 or IPv6 address nor a host name"
    ]


def test_the_discovery_of_servers_takes_addresses_only(tmp_path: Path):
    path = tmp_path / "clusters.yaml"
    path.write_text(TEXT)
    found = make_plugin(FileDiscovery, None, {"path": str(path)}).load()
    assert [spec.name for spec in found.endpoints] == ["west"]


def test_it_is_a_discovery_that_reads_its_file(tmp_path: Path):
    path = tmp_path / "clusters.yaml"
    path.write_text("endpoints: [{name: west, address: 10.0.0.2}, {name: here, address: localhost}]")
    plugin = make_plugin(MulticlusterFileDiscovery, None, {"path": str(path)})
    assert isinstance(plugin, EndpointDiscovery)
    assert plugin.info.stability is Stability.ALPHA
    names = {spec.name for spec in plugin.load().endpoints}
    assert names >= {"west", "here-127.0.0.1"}
