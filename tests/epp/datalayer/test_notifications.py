"""Attributes derived from what discovery says."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dataplane.plugin.base import DataKey, TypedName
from epp.datalayer.discovery_runtime import DiscoveryRuntime
from epp.datalayer.notifications import EndpointNotifier
from epp.interfaces.data_layer import DiscoveredSet
from epp.interfaces.endpoint import EndpointSpec, EndpointTable

COLOUR = DataKey[str]("Colour", "painter")


class Painter:
    """Takes the colour from a label."""

    name = TypedName("painter", "painter")
    produces: Sequence[DataKey[Any]] = (COLOUR,)

    def extract(self, spec: EndpointSpec) -> Mapping[DataKey[Any], Any]:
        if spec.labels.get("colour") == "none":
            raise LookupError("no such colour")
        return {COLOUR: spec.labels.get("colour")}


class Reports:
    """A discovery whose next report is put in by hand."""

    def __init__(self) -> None:
        self.specs: list[EndpointSpec] = []

    def load(self) -> DiscoveredSet:
        return DiscoveredSet(self.specs, [])

    def poll(self) -> DiscoveredSet | None:
        return None


def spec(name: str, last: int, **labels: str) -> EndpointSpec:
    return EndpointSpec(name, "default", f"10.0.0.{last}", 8000, labels)


async def test_attributes_follow_endpoints_and_their_labels():
    table, reports = EndpointTable(), Reports()
    runtime = DiscoveryRuntime(reports, table, [EndpointNotifier(table, [Painter()])])

    async def colours(*specs: EndpointSpec) -> dict[str, str | None]:
        reports.specs = list(specs)
        await runtime.load()
        return {e.spec.name: table.attributes.get(e.slot, COLOUR) for e in table.all().endpoints}

    assert await colours(spec("a", 1, colour="red"), spec("b", 2)) == {"a": "red", "b": None}
    assert await colours(spec("a", 1, colour="blue"), spec("b", 2, colour="red")) == {"a": "blue", "b": "red"}
    assert await colours(spec("b", 2), spec("c", 3)) == {"b": None, "c": None}


def test_a_new_configuration_derives_what_there_is():
    table = EndpointTable()
    endpoint = table.add(spec("a", 1, colour="red"))
    EndpointNotifier(table, []).refresh()
    assert table.attributes.of(endpoint.slot) == {}
    EndpointNotifier(table, [Painter()]).refresh()
    assert table.attributes.of(endpoint.slot) == {"Colour/painter": "red"}


def test_a_failing_extractor_stops_nobody(caplog: pytest.LogCaptureFixture):
    table = EndpointTable()
    table.add(spec("a", 1, colour="none"))
    second = table.add(spec("b", 2, colour="red"))
    with caplog.at_level(logging.ERROR):
        EndpointNotifier(table, [Painter()]).refresh()
    assert table.attributes.get(second.slot, COLOUR) == "red"
    assert [record.getMessage() for record in caplog.records] == ["painter failed on endpoint default/a"]


def test_an_attribute_that_is_not_declared_is_dropped(caplog: pytest.LogCaptureFixture):
    table = EndpointTable()
    endpoint = table.add(spec("a", 1, colour="red"))
    painter = Painter()
    painter.produces = ()
    EndpointNotifier(table, [painter]).refresh()
    assert table.attributes.of(endpoint.slot) == {}
    assert "Colour/painter is not among what it declares to produce" in caplog.text
