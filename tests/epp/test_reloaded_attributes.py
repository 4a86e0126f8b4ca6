"""Attributes of endpoints follow a reload: what is still produced stays, the rest is forgotten."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from epp.app import Picker
from epp.options import EppOptions
from tests.epp.datalayer.model_server import ModelServer, answer, page
from tests.support.waiting import until

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: endpoint-attribute-scorer
  parameters:
    attributeKey: {attribute}
    algorithm: {{type: linear_lower_is_better, normalization: {{adaptiveRange: {{}}}}}}
- type: topology-affinity-scorer
- type: topology-extractor
  parameters: {{zone: {zone}}}
- type: core-metrics-extractor
  parameters:
    engineConfigs:
    - name: vllm
      queuedRequestsSpec: vllm:num_requests_waiting
      customMetrics: [{{attributeKey: {attribute}, metricSpec: heat}}]
"""
LABELS = {"zone": "z1", "area": "z2"}


class Site:
    """A picker over one server."""

    def __init__(self, folder: Path, port: int) -> None:
        self.config = folder / "config.yaml"
        endpoints = folder / "endpoints.json"
        listed = {"name": "a", "address": "127.0.0.1", "port": str(port), "labels": LABELS}
        endpoints.write_text(json.dumps({"endpoints": [listed]}))
        self.write("Heat", "zone")
        self.picker = Picker(
            EppOptions(
                grpc_port=0,
                grpc_health_port=0,
                metrics_port=0,
                host="127.0.0.1",
                metrics_host="127.0.0.1",
                secure_serving=False,
                config_file=str(self.config),
                endpoints_file=str(endpoints),
                watch_config=False,
                allow_experimental_plugins=True,
            )
        )

    def write(self, attribute: str, zone: str) -> None:
        self.config.write_text(CONFIG.format(attribute=attribute, zone=zone))

    def attributes(self) -> Mapping[str, Any]:
        """Of the one endpoint, numbers and zones."""
        table = self.picker.table
        found = table.attributes.of(table.all().endpoint(0).slot)
        return {name: getattr(value, "zone", value) for name, value in found.items()}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A running picker whose server has a temperature."""
    server = ModelServer(answer(page() + b"heat 21\n"))
    await server.start()
    site = Site(tmp_path, server.port)
    await site.picker.start()
    yield site
    await site.picker.stop()
    await server.stop()


HEAT = "Heat/core-metrics-extractor"
ZONE = "Topology/topology-extractor"


async def test_new_names_and_labels_take_the_place_of_the_old(site: Site) -> None:
    await until(lambda: site.attributes() == {HEAT: 21.0, ZONE: "z1"})
    site.write("Warmth", "area")
    assert await site.picker.reloader.reload() == []
    assert site.attributes()[ZONE] == "z2"
    assert HEAT not in site.attributes()
    await until(lambda: site.attributes() == {"Warmth/core-metrics-extractor": 21.0, ZONE: "z2"})


async def test_what_stays_the_same_stays_known(site: Site) -> None:
    await until(lambda: site.attributes() == {HEAT: 21.0, ZONE: "z1"})
    site.write("Heat", "area")
    assert await site.picker.reloader.reload() == []
    assert site.attributes() == {HEAT: 21.0, ZONE: "z2"}


async def test_a_refused_configuration_changes_nothing(site: Site) -> None:
    await until(lambda: site.attributes() == {HEAT: 21.0, ZONE: "z1"})
    site.write("Heat/x", "area")
    assert await site.picker.reloader.reload() != []
    assert site.attributes() == {HEAT: 21.0, ZONE: "z1"}


async def test_old_attributes_make_room_before_new_ones_come(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: site.attributes() == {HEAT: 21.0, ZONE: "z1"})
    monkeypatch.setattr("epp.interfaces.endpoint_attributes.MAX_KEYS", 4)
    text = CONFIG.format(attribute="Heat", zone="area")
    text = text.replace("topology-extractor", "topology-extractor\n  name: t")
    site.config.write_text(text.replace("- type: topology-affinity-scorer\n", ""))
    assert await site.picker.reloader.reload() == []
    assert site.attributes() == {HEAT: 21.0, "Topology/t": "z2"}
