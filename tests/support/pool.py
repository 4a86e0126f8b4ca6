"""Builders of what plugins see: a pool of endpoints, requests, and plugin instances."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dataplane.clock import Clock
from dataplane.config.problems import raise_any
from dataplane.errors import ConfigError
from dataplane.headers import Headers
from dataplane.plugin.base import TypedName
from dataplane.plugin.params import decode_params
from epp.interfaces.endpoint import Candidates, Endpoint, EndpointSpec, EndpointTable
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest, ParsedBody
from epp.interfaces.scheduling import ProfileResult, SchedulingResult
from tests.support.clock import ManualClock


def make_table(count: int, *, fresh: bool = True, **columns: Sequence[float]) -> EndpointTable:
    """A table of endpoints e0, e1, ... with measured columns, one value per endpoint."""
    table = EndpointTable(capacity=4)
    for i in range(count):
        add_endpoint(table, f"e{i}", fresh=fresh)
    for name, values in columns.items():
        getattr(table, name)[: len(values)] = values
    return table


def add_endpoint(table: EndpointTable, name: str, *, fresh: bool = True) -> Endpoint:
    """One more endpoint; its address is made of its slot."""
    number = 1 + max((int(e.spec.address.rpartition(".")[2]) for e in table.all().endpoints), default=0)
    endpoint = table.add(EndpointSpec(name=name, namespace="default", address=f"10.0.0.{number}", port=8000))
    if fresh:
        table.begin_scrape(endpoint.slot)
        table.end_scrape(endpoint.slot, 0.0)
    return endpoint


def make_request(parsed: ParsedBody | None = None, **fields: Any) -> InferenceRequest:
    """A request as the director makes it, with a parsed body of these fields."""
    parsed = parsed or ParsedBody(**{"model": "m", **fields})
    return InferenceRequest("request-1", "/v1/chat/completions", Headers([]), b"{}", parsed, 0.0)


def make_plugin(
    plugin_class: type[Any],
    table: EndpointTable | None = None,
    parameters: Mapping[str, Any] | None = None,
    *,
    name: str = "",
    clock: Clock | None = None,
    seed: int = 0,
    plugins: Mapping[str, Any] | None = None,
) -> Any:
    """An instance with the parameters an operator would write. ``ConfigErrors`` when they are refused."""
    info = plugin_class.info
    problems: list[ConfigError] = []
    params = decode_params(parameters, info, "parameters", problems)
    raise_any(problems)
    handle = Handle(
        table=table if table is not None else EndpointTable(),
        clock=clock or ManualClock(),
        rng=random.Random(seed),
        plugins=plugins or {},
        parameters=dict(parameters or {}),
    )
    return plugin_class(TypedName(info.type, name or info.type), params, handle)


def chosen(candidates: Candidates, position: int) -> SchedulingResult:
    """A decision for the endpoint at one position."""
    endpoint = candidates.endpoint(position)
    result = ProfileResult("default", [endpoint], candidates, np.zeros(len(candidates)), [], [])
    return SchedulingResult({"default": result}, "default")


def prefilled(candidates: Candidates, position: int, prefill: int) -> SchedulingResult:
    """A decision for the endpoint at one position, with the prompt computed at another."""
    result = chosen(candidates, position)
    endpoint, none = candidates.endpoint(prefill), np.zeros(len(candidates))
    result.results["prefill"] = ProfileResult("prefill", [endpoint], candidates, none, [], [])
    result.prefill = "prefill"
    return result
