"""Subset hints: who may be picked for one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from epp.candidates import locate
from epp.interfaces.endpoint import EndpointSpec, EndpointTable


class Hint:
    """Metadata of one message, by namespace."""

    def __init__(self, **namespaces: Mapping[str, Any]) -> None:
        self._namespaces = {name.replace("__", "."): value for name, value in namespaces.items()}

    def namespace(self, name: str) -> Mapping[str, Any] | None:
        return self._namespaces.get(name)


KEY = "x-gateway-destination-endpoint-subset"


@pytest.fixture
def table() -> EndpointTable:
    table = EndpointTable()
    for i, (address, port) in enumerate(
        [("10.0.0.1", 8000), ("10.0.0.1", 8001), ("10.0.0.2", 8000), ("fd00::1", 8000)]
    ):
        table.add(EndpointSpec(f"pod-{i}", "default", address, port))
    return table


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        pytest.param(["10.0.0.2:8000"], ["10.0.0.2:8000"], id="one"),
        pytest.param(["10.0.0.1:8001", "10.0.0.2:8000"], ["10.0.0.1:8001", "10.0.0.2:8000"], id="two"),
        pytest.param("10.0.0.1:8000, 10.0.0.2:8000", ["10.0.0.1:8000", "10.0.0.2:8000"], id="comma-string"),
        pytest.param(["10.0.0.1:8000,10.0.0.2:8000"], ["10.0.0.1:8000", "10.0.0.2:8000"], id="comma-in-item"),
        pytest.param(["10.0.0.1"], ["10.0.0.1:8000", "10.0.0.1:8001"], id="bare-ip-is-all-ports"),
        pytest.param(["[fd00::1]:8000"], ["[fd00::1]:8000"], id="ipv6"),
        pytest.param(["fd00::1"], ["[fd00::1]:8000"], id="bare-ipv6"),
        pytest.param(["10.9.9.9:8000"], [], id="unknown"),
        pytest.param(["10.0.0.1:9999"], [], id="known-ip-wrong-port"),
        pytest.param([], [], id="empty-list"),
        pytest.param("", [], id="empty-string"),
        pytest.param(None, [], id="null"),
        pytest.param([7, {"a": 1}], [], id="not-text"),
    ],
)
def test_a_hint_leaves_only_what_it_names(table: EndpointTable, hint: Any, expected: list[str]) -> None:
    found = locate(table, Hint(envoy__lb__subset_hint={KEY: hint}))
    assert [e.key for e in found.endpoints] == expected


def test_without_metadata_or_key_the_whole_pool_is_candidate(table: EndpointTable) -> None:
    assert locate(table, None) is table.all()
    assert locate(table, Hint()) is table.all()
    assert locate(table, Hint(envoy__lb__subset_hint={"other": ["10.0.0.1:8000"]})) is table.all()


def test_a_dead_endpoint_is_no_candidate_even_if_the_hint_names_it(table: EndpointTable) -> None:
    dead = table.at("10.0.0.2:8000")
    assert dead is not None
    table.distrust(dead.slot, gone=True)
    assert "10.0.0.2:8000" not in [e.key for e in locate(table, None).endpoints]
    both = Hint(envoy__lb__subset_hint={KEY: ["10.0.0.2:8000", "10.0.0.1:8000"]})
    assert [e.key for e in locate(table, both).endpoints] == ["10.0.0.1:8000"]
    alone = Hint(envoy__lb__subset_hint={KEY: ["10.0.0.2:8000"]})
    assert [e.key for e in locate(table, alone).endpoints] == ["10.0.0.2:8000"]
