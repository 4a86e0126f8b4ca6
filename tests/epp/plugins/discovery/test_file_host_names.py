"""Host names in an endpoints file: followed at the start, on a change of the file, and through failures."""

import json
import socket
import threading
import time
from pathlib import Path

import msgspec
import pytest

from dataplane.plugin.base import TypedName
from dataplane.resolver import Resolver
from epp.interfaces.data_layer import DiscoveredSet
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.discovery.file import FileDiscovery
from epp.plugins.file_endpoints import EndpointsInFileParams
from tests.support.clock import ManualClock


def discovery(path: Path, *, watch: bool = True) -> FileDiscovery:
    """A plugin for this file."""
    params = msgspec.convert({"path": str(path), "watchFile": watch}, EndpointsInFileParams)
    return FileDiscovery(TypedName("file-discovery", "file"), params, Handle(EndpointTable()))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one endpoint that has an address."""
    path = tmp_path / "endpoints.yaml"
    path.write_text("endpoints: [{name: a, address: 10.0.0.1}]")
    return path


class NameServer:
    """Answers for the names in a file, put in by hand; takes the place of the system's."""

    def __init__(self, plugin: FileDiscovery) -> None:
        self.answers: dict[str, list[str]] = {}
        self.clock = ManualClock()
        self.gate = threading.Event()
        self.gate.set()
        plugin._resolver = Resolver(lookup=self.look_up, clock=self.clock)

    def look_up(self, name: str, family: socket.AddressFamily) -> list[str]:
        self.gate.wait()
        if name not in self.answers:
            raise socket.gaierror(-2, "Name or service not known")
        return self.answers[name]


def named(*hosts: str) -> str:
    """A file with one entry per host name."""
    entries = [{"name": f"s{i}", "address": host} for i, host in enumerate(hosts)]
    return json.dumps({"apiVersion": "pointsman.dev/v1", "kind": "EndpointList", "endpoints": entries})


def reported(plugin: FileDiscovery) -> DiscoveredSet:
    """The next set that polling finds."""
    while (found := plugin.poll()) is None:
        time.sleep(0.001)
    return found


def keys(found: DiscoveredSet) -> list[str]:
    """Where the endpoints are."""
    return [spec.key for spec in found.endpoints]


def test_names_are_resolved_at_the_start_and_followed_though_the_file_is_not_watched(file: Path):
    plugin = discovery(file, watch=False)
    server = NameServer(plugin)
    file.write_text(named("a.example"))
    server.answers = {"a.example": ["10.0.0.1", "fd00::1"]}
    assert keys(plugin.load()) == ["10.0.0.1:8000", "[fd00::1]:8000"]
    server.answers = {"a.example": ["10.0.0.2"]}
    server.clock.advance(11)
    assert keys(reported(plugin)) == ["10.0.0.2:8000"]
    server.answers = {}
    server.clock.advance(11)
    assert reported(plugin) == DiscoveredSet(
        [EndpointSpec("s0-10.0.0.2", "default", "10.0.0.2", 8000)],
        [
            f"{file}: a.example cannot be resolved (Name or service not known); its last 1 addresses stay",
        ],
    )


def test_a_name_that_is_not_known_yet_is_no_reason_not_to_start(file: Path):
    plugin = discovery(file)
    server = NameServer(plugin)
    file.write_text(named("a.example"))
    assert plugin.load() == DiscoveredSet(
        [], [f"{file}: a.example cannot be resolved (Name or service not known); it has no address"]
    )
    server.answers = {"a.example": ["10.0.0.1"]}
    server.clock.advance(11)
    found = reported(plugin)
    assert (keys(found), found.problems) == (["10.0.0.1:8000"], [])


def test_a_changed_file_applies_once_its_names_have_been_tried(file: Path):
    plugin = discovery(file)
    server = NameServer(plugin)
    plugin.load()
    server.gate.clear()
    server.answers = {"a.example": ["10.0.0.9"]}
    file.write_text(named("a.example"))
    assert [plugin.poll() for _ in range(20)] == [None] * 20
    server.gate.set()
    assert keys(reported(plugin)) == ["10.0.0.9:8000"]


def test_a_changed_file_applies_without_the_name_that_does_not_answer_in_time(file: Path):
    plugin = discovery(file)
    server = NameServer(plugin)
    plugin.load()
    server.gate.clear()
    file.write_text(named("a.example", "10.0.0.7"))
    assert [plugin.poll() for _ in range(5)] == [None] * 5
    server.clock.advance(6)
    found = reported(plugin)
    assert keys(found) == ["10.0.0.7:8000"]
    assert found.problems == [
        f"{file}: a.example cannot be resolved (no answer within 5 s); it has no address"
    ]
    server.gate.set()


def test_a_broken_file_keeps_the_names_followed(file: Path):
    plugin = discovery(file)
    server = NameServer(plugin)
    server.answers = {"a.example": ["10.0.0.1"]}
    file.write_text(named("a.example"))
    plugin.load()
    file.write_text("endpoints: [")
    assert "cannot be read: line 1" in reported(plugin).problems[0]
    server.answers = {"a.example": ["10.0.0.2"]}
    server.clock.advance(11)
    found = reported(plugin)
    assert keys(found) == ["10.0.0.2:8000"]
    assert found.problems[1] == f"{file}: nothing of it is applied, the 1 endpoints there are stay"
