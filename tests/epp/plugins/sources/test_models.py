"""Lists of models are fetched from the port that serves requests, and end up on the endpoint."""

from dataplane.plugin.base import TypedName
from epp.datalayer.scraper import Scraper
from epp.interfaces.attributes import SERVED_MODELS, ServedModel
from epp.interfaces.data_layer import DataSource
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.extractors.models import ModelsExtractor
from epp.plugins.sources.models import ModelsSource
from tests.epp.datalayer.model_server import ModelServer, answer
from tests.support.pool import make_plugin, make_table
from tests.support.waiting import until


class Errors:
    """Counts poll errors."""

    def __init__(self) -> None:
        self.count = 0

    def poll_error(self, source_type: str) -> None:
        assert source_type == "models-data-source"
        self.count += 1

    def extract_error(self, source_type: str, extractor_type: str) -> None:
        assert (source_type, extractor_type) == ("models-data-source", "models-data-extractor")
        self.count += 1


def test_defaults_are_those_of_the_field():
    plugin = make_plugin(ModelsSource)
    assert isinstance(plugin, DataSource)
    (endpoint,) = make_table(1).all().endpoints
    assert (plugin.scheme, plugin.path, plugin.tls(endpoint), plugin.accept) == (
        "http",
        "/v1/models",
        None,
        "application/json",
    )
    assert plugin.authority(endpoint) == endpoint.key


def test_another_port_for_metrics_does_not_matter():
    table = EndpointTable()
    endpoint = table.add(EndpointSpec("a", "default", "10.0.0.1", 8000, {}, "10.9.9.9:1234"))
    assert make_plugin(ModelsSource).authority(endpoint) == "10.0.0.1:8000"


async def test_the_list_is_asked_for_as_json_and_left_on_the_endpoint():
    server = ModelServer(answer(b'{"object": "list", "data": [{"id": "m"}]}'))
    await server.start()
    table, errors = EndpointTable(), Errors()
    source = make_plugin(ModelsSource)
    extractor = ModelsExtractor(
        TypedName("models-data-extractor", "models"), ModelsExtractor.info.params(), Handle(table)
    )
    source.bind([extractor])
    source.interval_s = 0.0
    scraper = Scraper(table, [source], errors, base_interval_s=0.01, staleness_s=60.0)
    endpoint = table.add(EndpointSpec("a", "default", "127.0.0.1", server.port))
    scraper.start()
    try:
        await until(lambda: table.attributes.get(endpoint.slot, SERVED_MODELS) == (ServedModel("m"),))
        assert server.requests[0].startswith(b"GET /v1/models HTTP/1.1\r\n")
        assert b"\r\nAccept: application/json\r\n" in server.requests[0]
        assert not table.fresh[endpoint.slot]
        server.answer = answer(b"<html>")
        await until(lambda: errors.count > 0)
        assert table.attributes.get(endpoint.slot, SERVED_MODELS) == (ServedModel("m"),)
        assert scraper.problem(endpoint).startswith(
            "models-data-source: models-data-extractor cannot read the answer: it is no list of models ("
        )
    finally:
        scraper.stop()
        await server.stop()
