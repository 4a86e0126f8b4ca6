"""Pools of endpoints with labels, and the names of what a filter leaves of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from epp.interfaces.endpoint import Candidates, EndpointSpec, EndpointTable
from tests.support.pool import make_plugin, make_request


def labelled_table(labels: Sequence[Mapping[str, str]]) -> EndpointTable:
    """Endpoints e0, e1, ... with these labels at 10.0.0.1:8000, 10.0.0.2:8000, ..."""
    table = EndpointTable(capacity=4)
    for i, own in enumerate(labels):
        table.add(EndpointSpec(f"e{i}", "default", f"10.0.0.{i + 1}", 8000, dict(own)))
    return table


def names(candidates: Candidates) -> list[str]:
    """Names of the endpoints in order, after a check that columns and objects speak of the same ones."""
    assert [endpoint.slot for endpoint in candidates.endpoints] == candidates.slots.tolist()
    return [endpoint.spec.name for endpoint in candidates.endpoints]


def left_by(
    plugin_class: type[Any],
    labels: Sequence[Mapping[str, str]],
    parameters: Mapping[str, Any] | None = None,
) -> list[str]:
    """Names of what a filter leaves of a pool with these labels."""
    table = labelled_table(labels)
    plugin = make_plugin(plugin_class, table, parameters)
    return names(plugin.filter(make_request(), table.all()))
