"""The discovery benchmark: how soon what is applied is in use, and what telling everybody costs the server.

A real control plane on SQLite, a real Envoy with all pools, and one subscription per pool that takes sets in
as a picker does. Each change is one call of the API; it is applied once Envoy's own figures, or every
subscription concerned, show it. What the API itself takes for a call stands beside it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.children import BenchError
from benchmarks.cpu import resident_bytes
from benchmarks.envoy_process import Envoy
from benchmarks.machine import Machine, describe_machine
from benchmarks.tables import number, render_table
from benchmarks.xds_rig import GATEWAY, ControlPlane, Pickers, endpoint_list, gateway, objective, pool

LIMIT_S = 2.0
"""Promised: published to applied, for 200 pools and 5000 endpoints."""
PATIENCE_S = 120.0
LOOK_S = 0.02


class XdsOptions(msgspec.Struct, frozen=True):
    """The flags of `pointsman bench xds`."""

    pools: int = 200
    endpoints: int = 5000
    repeat: int = 3


class Change(msgspec.Struct, frozen=True):
    """One kind of change; times are the slowest of all rounds."""

    what: str
    call_s: float
    """Of the API call, whose end is the moment of publishing."""
    applied_s: float
    """From then on."""
    server_cpu_s: float
    """CPU time of the discovery server from the begin of the call."""


class XdsResult(msgspec.Struct, frozen=True):
    """Everything a run found out."""

    machine: Machine
    options: XdsOptions
    changes: list[Change]
    resident_bytes: int
    idle_cores: float


def run(options: XdsOptions) -> XdsResult:
    """Start everything, change things, watch. Raises `BenchError`."""
    return asyncio.run(_run(options))


async def _run(options: XdsOptions) -> XdsResult:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-bench-")))
        plane = stack.enter_context(ControlPlane(folder))
        names = [f"pool-{index}" for index in range(options.pools)]
        share = max(1, options.endpoints // options.pools)
        documents = [gateway(plane.ports(0, "listener")), *(pool(name) for name in names)]
        await plane.apply([*documents, *(endpoint_list(name, share) for name in names)])
        envoy = stack.enter_context(Envoy("envoy", plane.bootstrap(), folder))
        pickers = await stack.enter_async_context(Pickers(names, plane.server))
        await _until(lambda: _has_endpoints(envoy, names, share), "Envoy has all endpoints")
        await _until(pickers.all_heard, "every picker has heard")
        cpu, started = plane.xds.cpu_seconds(), time.monotonic()
        await asyncio.sleep(3)
        idle = (plane.xds.cpu_seconds() - cpu) / (time.monotonic() - started)
        changes: dict[str, list[Change]] = {}
        for round_ in range(1, options.repeat + 1):
            for found in await _round(plane, envoy, pickers, names, share, round_):
                changes.setdefault(found.what, []).append(found)
        memory = resident_bytes(plane.xds.pid)
    return XdsResult(describe_machine(), options, list(map(_slowest, changes.values())), memory, idle)


async def _round(
    plane: ControlPlane, envoy: Envoy, pickers: Pickers, names: list[str], share: int, round_: int
) -> list[Change]:
    grown = share + round_

    async def one_list() -> bool:
        return await _has_endpoints(envoy, names[:1], grown)

    async def all_lists() -> bool:
        return await _has_endpoints(envoy, names, grown)

    async def routed() -> bool:
        return await asyncio.to_thread(plane.is_served, envoy.address, f"new-{round_}")

    async def told() -> bool:
        return pickers.has(f"objective-{round_}")

    new = [pool(f"new-{round_}"), endpoint_list(f"new-{round_}", share)]
    return [
        await _change(plane, "endpoints of one pool", [endpoint_list(names[0], grown)], one_list),
        await _change(
            plane, "endpoints of every pool", [endpoint_list(name, grown) for name in names], all_lists
        ),
        await _change(plane, "a new pool and its route", new, routed),
        await _change(
            plane,
            "an objective of every pool",
            [objective(f"objective-{round_}-{name}", name) for name in names],
            told,
        ),
    ]


async def _change(
    plane: ControlPlane,
    what: str,
    documents: list[dict[str, Any]],
    is_applied: Callable[[], Awaitable[bool]],
) -> Change:
    cpu, began = plane.xds.cpu_seconds(), time.monotonic()
    await plane.apply(documents)
    published = time.monotonic()
    await _until(is_applied, what)
    applied = time.monotonic()
    return Change(what, published - began, applied - published, plane.xds.cpu_seconds() - cpu)


async def _has_endpoints(envoy: Envoy, names: list[str], count: int) -> bool:
    only = f"{names[0]}" if len(names) == 1 else "pool-[0-9]+"
    path = f"/stats?filter=^cluster\\.pool-{only}\\.membership_total$"
    text = (await asyncio.to_thread(envoy.get, path)).decode()
    found = [int(line.rpartition(": ")[2]) for line in text.splitlines()]
    return len(found) == len(names) and all(each == count for each in found)


async def _until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await holds():
        if time.monotonic() > deadline:
            raise BenchError(f"not within {PATIENCE_S:g} s: {what}")
        await asyncio.sleep(LOOK_S)


def _slowest(found: list[Change]) -> Change:
    return Change(
        found[0].what,
        max(each.call_s for each in found),
        max(each.applied_s for each in found),
        max(each.server_cpu_s for each in found),
    )


def complaints(result: XdsResult) -> list[str]:
    """What is not as promised; empty when all is well."""
    return [
        f"{each.what}: applied {each.applied_s:.2f} s after publishing, promised {LIMIT_S:g}"
        for each in result.changes
        if each.applied_s > LIMIT_S
    ]


def render(result: XdsResult) -> str:
    """The run as text for a terminal."""
    rows = [
        [each.what, number(each.call_s, 2), number(each.applied_s, 2), number(each.server_cpu_s, 2)]
        for each in result.changes
    ]
    options = result.options
    return (
        render_table(["change", "call s", "applied s", "ADS CPU s"], rows)
        + f"\n{options.pools} pools, {options.endpoints} endpoints, gateway {GATEWAY}; the discovery server:"
        f" {number(result.resident_bytes / 2**20)} MiB, idle {number(result.idle_cores, 3)} cores"
    )
