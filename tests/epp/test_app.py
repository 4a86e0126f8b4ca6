"""A whole picker in one process: it starts, takes new configurations while requests run, and stops."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dataplane.config.reload import revision_of
from dataplane.errors import ConfigError
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Ending, HttpRequest
from dataplane.headers import Headers
from epp.app import Picker
from epp.handler import PickerExchange
from epp.interfaces.data_layer import DiscoveredSet
from epp.options import EppOptions
from epp.plugins.discovery.file import FileDiscovery
from epp.plugins.producers.approximate_prefix import ApproximatePrefixProducer
from tests.support.request_path import destination
from tests.support.waiting import until

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: prefix-cache-scorer
- type: file-discovery
  parameters: {{path: {endpoints}, watchFile: true}}
schedulingProfiles:
- name: default
  plugins:
  - {{pluginRef: queue-scorer, weight: {queue}}}
  - {{pluginRef: prefix-cache-scorer, weight: 3}}
dataLayer:
  discovery: {{pluginRef: file-discovery}}
"""


def write_endpoints(file: Path, *ports: int) -> None:
    listed = [{"name": f"e{port}", "address": "127.0.0.1", "port": str(port)} for port in ports]
    file.write_text(json.dumps({"endpoints": listed}))


class Site:
    """A picker's files, and the picker."""

    def __init__(self, folder: Path, *, watch_config: bool = False) -> None:
        self.endpoints = folder / "endpoints.yaml"
        self.config = folder / "config.yaml"
        write_endpoints(self.endpoints, 1, 2, 3)
        self.write(queue=2)
        self.picker = Picker(
            EppOptions(
                grpc_port=0,
                grpc_health_port=0,
                metrics_port=0,
                host="127.0.0.1",
                metrics_host="127.0.0.1",
                secure_serving=False,
                config_file=str(self.config),
                watch_config=watch_config,
            )
        )

    def write(self, queue: object, endpoints: Path | None = None) -> None:
        self.config.write_text(CONFIG.format(endpoints=endpoints or self.endpoints, queue=queue))

    def ask(self, content: str = "word " * 400) -> tuple[PickerExchange, str]:
        body = {"model": "m", "messages": [{"role": "user", "content": content}]}
        fields = Headers.of([(":path", "/v1/chat/completions"), (":method", "POST"), ("x-request-id", "r")])
        exchange = self.picker.handler.open()
        answer = exchange.on_request(HttpRequest(fields, json.dumps(body).encode(), None), lambda _: None)
        assert isinstance(answer, Proceed)
        return exchange, destination(answer)

    def weights(self) -> dict[str, float]:
        """Weights the newest decision was made with; it names the running configuration."""
        (decision,) = self.picker.decisions.recent(1)
        assert decision["config"] == self.picker.reloader.revision
        scores = decision["profiles"]["default"]["candidates"][0]["scores"]
        return {name: part["weight"] for name, part in scores.items()}

    def index(self) -> object:
        plugin = self.picker.current.graph.instances["approx-prefix-cache-producer"]
        assert isinstance(plugin, ApproximatePrefixProducer)
        return plugin.index


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A running picker over three endpoints that do not answer."""
    site = Site(tmp_path)
    await site.picker.start()
    yield site
    await site.picker.stop()


async def test_a_new_weight_is_used_by_the_next_request_and_nothing_learnt_is_lost(site: Site) -> None:
    picker = site.picker
    first, chosen = site.ask()
    assert site.weights() == {"queue-scorer": 2.0, "prefix-cache-scorer": 3.0}
    before, index = picker.current, site.index()
    site.write(queue=0.5)
    assert await picker.reloader.reload() == []
    assert picker.current is not before
    assert (picker.current.scraper, picker.current.discovery) == (before.scraper, before.discovery)
    assert site.index() is index
    second, again = site.ask()
    assert again == chosen
    assert site.weights() == {"queue-scorer": 0.5, "prefix-cache-scorer": 3.0}
    assert picker.table.inflight.sum() == 2
    first.on_end(Ending.NATURAL)
    second.on_end(Ending.NATURAL)
    assert picker.table.inflight.sum() == 0
    assert picker.table.unseen.sum() == 0


@pytest.mark.parametrize(
    ("queue", "problem"),
    [
        ("-1", "schedulingProfiles[0].plugins[0].weight"),
        ("[", "line"),
        ("1, pluginReff: x", "schedulingProfiles[0].plugins[0].pluginReff"),
    ],
)
async def test_a_broken_file_changes_nothing_and_says_where(site: Site, queue: str, problem: str) -> None:
    picker = site.picker
    before = picker.current
    site.write(queue=queue)
    problems = await picker.reloader.reload()
    assert problem in problems[0]
    assert picker.current is before
    assert picker.handler.director is before.director
    site.ask()[0].on_end(Ending.NATURAL)
    assert site.weights() == {"queue-scorer": 2.0, "prefix-cache-scorer": 3.0}


async def test_another_endpoints_file_takes_the_place_of_the_first(site: Site, tmp_path: Path) -> None:
    picker = site.picker
    running, _ = site.ask()
    other = tmp_path / "other.yaml"
    write_endpoints(other, 3, 4)
    before = picker.current
    site.write(queue=2, endpoints=other)
    assert await picker.reloader.reload() == []
    assert picker.current.discovery is not before.discovery
    assert sorted(e.key for e in picker.table.all().endpoints) == ["127.0.0.1:3", "127.0.0.1:4"]
    running.on_end(Ending.NATURAL)
    assert picker.table.inflight.sum() == 0


async def test_endpoints_found_at_the_start_are_warm_and_later_ones_are_not(
    site: Site, tmp_path: Path
) -> None:
    assert site.picker.table.warming == 0
    other = tmp_path / "other.yaml"
    write_endpoints(other, 3, 4)
    site.write(queue=2, endpoints=other)
    assert await site.picker.reloader.reload() == []
    table = site.picker.table
    assert {e.key: table.warm_since[e.slot] > 0 for e in table.all().endpoints} == {
        "127.0.0.1:3": False,
        "127.0.0.1:4": True,
    }


async def test_an_endpoints_file_that_is_not_there_is_refused(site: Site, tmp_path: Path) -> None:
    picker = site.picker
    before = picker.current
    site.write(queue=2, endpoints=tmp_path / "nowhere.yaml")
    (problem,) = await picker.reloader.reload()
    assert "nowhere.yaml" in problem
    assert picker.current is before
    assert len(picker.table) == 3
    write_endpoints(site.endpoints, 1)
    found = before.discovery._discovery.load()
    assert [spec.port for spec in found.endpoints] == [1]


async def test_plugins_that_go_on_are_the_ones_that_are_shown(site: Site) -> None:
    picker = site.picker
    before = picker.current.graph
    extractor = before.instances["core-metrics-extractor"]
    site.write(queue=0.5)
    assert await picker.reloader.reload() == []
    after = picker.current.graph
    assert after.discovery is before.discovery is after.instances["file-discovery"]
    assert after.discovery.dump_state()["totalEndpoints"] == 3
    assert after.instances["core-metrics-extractor"] is extractor
    assert after.sources == before.sources
    assert after.instances["queue-scorer"] is not before.instances["queue-scorer"]


async def test_a_reload_that_waits_when_the_picker_stops_puts_nothing_in_place(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picker, before = site.picker, site.picker.current
    loading, gate = threading.Event(), threading.Event()

    def load_later(self: FileDiscovery) -> DiscoveredSet:
        loading.set()
        gate.wait()
        return DiscoveredSet([], [])

    monkeypatch.setattr(FileDiscovery, "load", load_later)
    site.write(queue=2, endpoints=tmp_path / "other.yaml")
    reload = asyncio.create_task(picker.reload())
    await until(loading.is_set)
    await picker.stop()
    gate.set()
    assert await reload == ["the process is stopping"]
    assert picker.current is before
    assert len(picker.table) == 3


async def test_a_configuration_changed_while_the_picker_starts_is_used(tmp_path: Path) -> None:
    site = Site(tmp_path, watch_config=True)
    site.write(queue=0.5)
    revision = revision_of(site.config.read_bytes())
    await site.picker.start()
    try:
        await until(lambda: site.picker.reloader.revision == revision)
    finally:
        await site.picker.stop()
    assert site.picker.handler.director.revision == revision


async def test_endpoints_can_be_given_by_flag_alone(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    write_endpoints(file, 1, 2)
    options = {"grpc_port": 0, "grpc_health_port": 0, "metrics_port": 0, "host": "127.0.0.1"}
    picker = Picker(EppOptions(**options, endpoints_file=str(file), secure_serving=False))
    await picker.start()
    assert len(picker.table) == 2
    assert picker.health.is_ready
    await picker.stop()


async def test_an_extended_list_gives_the_pool_names_ranks_and_roles(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    document = {
        "apiVersion": "pointsman.dev/v1",
        "kind": "EndpointList",
        "resolve": {"family": "ipv4"},
        "endpoints": [
            {"name": "a", "address": "localhost", "port": 7, "ranks": 2, "role": "decode"},
            {"name": "b", "address": "::1", "port": 7, "metrics": {"port": 9}, "models": ["m"]},
        ],
    }
    file.write_text(json.dumps(document))
    options = {"grpc_port": 0, "grpc_health_port": 0, "metrics_port": 0, "host": "127.0.0.1"}
    picker = Picker(EppOptions(**options, endpoints_file=str(file), secure_serving=False))
    await picker.start()
    try:
        shown = picker._pages().endpoints(10)["endpoints"]
        facts = ("name", "address", "rank", "models", "metricsAddress", "labels")
        assert [tuple(row[fact] for fact in facts) for row in shown] == [
            ("a-127.0.0.1-rank-0", "127.0.0.1:7", 0, [], "127.0.0.1:7", {"llm-d.ai/role": "decode"}),
            ("a-127.0.0.1-rank-1", "127.0.0.1:8", 1, [], "127.0.0.1:8", {"llm-d.ai/role": "decode"}),
            ("b", "[::1]:7", 0, ["m"], "[::1]:9", {}),
        ]
    finally:
        await picker.stop()


def test_without_any_endpoints_the_way_out_is_said() -> None:
    with pytest.raises(ConfigError, match=r"^dataLayer\.discovery: nothing tells the picker its endpoints"):
        Picker(EppOptions())


def test_endpoints_from_two_places_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    write_endpoints(file, 1)
    text = CONFIG.format(endpoints=file, queue=1)
    with pytest.raises(ConfigError, match=r"^--endpoints-file: excludes"):
        Picker(EppOptions(config_text=text, endpoints_file=str(file)))
