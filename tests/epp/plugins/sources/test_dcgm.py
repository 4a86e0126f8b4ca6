"""Where the DCGM exporter of an endpoint is."""

import pytest

from dataplane.errors import ConfigError
from dataplane.plugin.base import Stability
from epp.datalayer.scraper import Scraper
from epp.interfaces.data_layer import DataSource
from epp.interfaces.endpoint import Endpoint, EndpointSpec, EndpointTable
from epp.plugins.sources.dcgm import NODE_ADDRESS, DcgmSource
from tests.epp.datalayer.model_server import CountedErrors
from tests.support.pool import make_plugin
from tests.support.waiting import until


def endpoint(**annotations: str) -> Endpoint:
    spec = EndpointSpec("a", "default", "10.0.0.1", 8000, annotations=annotations)
    return EndpointTable().add(spec)


def test_defaults_are_those_of_the_field():
    plugin = make_plugin(DcgmSource)
    assert isinstance(plugin, DataSource)
    assert (plugin.scheme, plugin.path, plugin.payload) == ("http", "/metrics", "prometheus-text")
    assert plugin.authority(endpoint()) == "10.0.0.1:9400"
    assert plugin.info.stability is Stability.ALPHA


def test_the_nodes_address_is_used_if_asked_for_and_known():
    plugin = make_plugin(DcgmSource, None, {"useNodeAddress": True, "port": 9401})
    assert plugin.authority(endpoint(**{NODE_ADDRESS: "fd00::7"})) == "[fd00::7]:9401"
    assert plugin.authority(endpoint()) == ""
    assert make_plugin(DcgmSource).authority(endpoint(**{NODE_ADDRESS: "fd00::7"})) == "10.0.0.1:9400"


def test_a_port_is_needed():
    with pytest.raises(ConfigError, match="port: 0 is not a port; use 1 to 65535"):
        make_plugin(DcgmSource, None, {"port": 0})


async def test_an_endpoint_whose_node_is_not_known_is_not_polled_and_says_so():
    table = EndpointTable()
    row = table.add(EndpointSpec("a", "default", "127.0.0.1", 8000))
    source = make_plugin(DcgmSource, None, {"useNodeAddress": True})
    source.interval_s = 0.0
    scraper = Scraper(table, [source], CountedErrors(), base_interval_s=0.01, staleness_s=60.0)
    scraper.start()
    try:
        await until(lambda: scraper.problem(row) != "")
        assert scraper.problem(row) == (
            "dcgm-data-source: no address to poll is known; check what discovery says of the endpoint"
        )
    finally:
        scraper.stop()
