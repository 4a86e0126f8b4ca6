"""Where the metrics of another cluster's picker are, and that they end up on its endpoint."""

import pytest

from dataplane.plugin.base import Stability
from epp.datalayer.scraper import Scraper
from epp.interfaces.attributes import POOL_KV_CACHE_UTILIZATION, POOL_QUEUE_SIZE
from epp.interfaces.data_layer import DataSource
from epp.interfaces.endpoint import Endpoint, EndpointSpec, EndpointTable
from epp.plugins.extractors.multicluster_metrics import MulticlusterMetricsExtractor
from epp.plugins.sources.multicluster_metrics import MulticlusterMetricsSource
from tests.epp.datalayer.model_server import CountedErrors, ModelServer, answer
from tests.support.pool import make_plugin
from tests.support.waiting import until


def endpoint(metrics_host: str = "", **labels: str) -> Endpoint:
    return EndpointTable().add(EndpointSpec("a", "default", "10.0.0.1", 8000, labels, metrics_host))


def test_defaults_are_those_of_the_field():
    plugin = make_plugin(MulticlusterMetricsSource)
    assert isinstance(plugin, DataSource)
    assert (plugin.scheme, plugin.path, plugin.interval_s) == ("https", "/metrics", 1.0)
    assert plugin.tls(endpoint()) is not None
    assert plugin.info.stability is Stability.ALPHA


@pytest.mark.parametrize(
    ("port", "row", "authority"),
    [
        (0, endpoint(), "10.0.0.1:8000"),
        (0, endpoint("10.9.9.9:1"), "10.9.9.9:1"),
        (9090, endpoint("10.9.9.9:1"), "10.0.0.1:9090"),
        (0, endpoint(metricsAddress="epp.east.example", metricsPort="9443"), "epp.east.example:9443"),
        (9090, endpoint(metricsAddress="fd00::1"), "[fd00::1]:9090"),
        (9090, endpoint(metricsPort="9443"), "10.0.0.1:9443"),
        (0, endpoint(metricsAddress="epp.east.example"), "epp.east.example:8000"),
        (0, endpoint(metricsPort="http"), ""),
        (0, endpoint(metricsPort="0"), ""),
        (0, endpoint(metricsPort="70000"), ""),
        (0, endpoint(metricsAddress="a\r\nHost: b"), ""),
        (0, endpoint(metricsAddress="x" * 254), ""),
    ],
)
def test_labels_say_where_else_the_port_else_the_endpoint(port: int, row: Endpoint, authority: str):
    assert make_plugin(MulticlusterMetricsSource, None, {"port": port}).authority(row) == authority


async def test_the_averages_of_another_picker_are_left_on_the_endpoint():
    page = (
        b"# TYPE llm_d_epp_average_kv_cache_utilization gauge\n"
        b'llm_d_epp_average_kv_cache_utilization{name="p"} 0.5\n'
        b'# TYPE llm_d_epp_average_queue_size gauge\nllm_d_epp_average_queue_size{name="p"} 3\n'
    )
    server = ModelServer(answer(page))
    await server.start()
    table = EndpointTable()
    source = make_plugin(MulticlusterMetricsSource, None, {"scheme": "http"})
    source.bind([make_plugin(MulticlusterMetricsExtractor)])
    source.interval_s = 0.0
    scraper = Scraper(table, [source], CountedErrors(), base_interval_s=0.01, staleness_s=60.0)
    labels = {"metricsAddress": "127.0.0.1", "metricsPort": str(server.port)}
    row = table.add(EndpointSpec("east", "default", "10.0.0.1", 443, labels))
    scraper.start()
    try:
        await until(lambda: table.attributes.get(row.slot, POOL_QUEUE_SIZE) == 3.0)
        assert table.attributes.get(row.slot, POOL_KV_CACHE_UTILIZATION) == 0.5
    finally:
        scraper.stop()
        await server.stop()
