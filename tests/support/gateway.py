"""A whole gateway for tests: simulated servers, pickers and a real Envoy, on free ports and in a folder."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from cli.local.config import parse
from cli.local.gateway import Gateway
from cli.local.plan import make_plan
from dataplane.processes.child import StartError
from dataplane.processes.ports import LOOPBACK, Ports

TRIES = 3
"""Starts that are tried: a port that was free can be a neighbour's by the time it is listened on."""


@asynccontextmanager
async def started_gateway(config: str, folder: Path) -> AsyncIterator[Gateway]:
    """The gateway of a configuration, ready; stopped when the block ends."""
    async with AsyncExitStack() as stack:
        yield await _start(config, folder, stack)


async def _start(config: str, folder: Path, stack: AsyncExitStack) -> Gateway:
    for left in reversed(range(TRIES)):
        plan = make_plan(parse(config), folder, Ports(random.SystemRandom()))
        attempt = AsyncExitStack()
        gateway = await attempt.enter_async_context(Gateway(plan, say=lambda _: None))
        try:
            await gateway.start()
        except BaseException as error:
            await attempt.aclose()
            if isinstance(error, StartError) and left and "is in use by another process" in str(error):
                continue
            raise
        stack.push_async_exit(attempt)
        return gateway
    raise AssertionError("the last try returns or raises")


async def envoy_counters(gateway: Gateway, session: aiohttp.ClientSession, wanted: str) -> dict[str, int]:
    """Envoy's counters whose names match."""
    url = f"http://{LOOPBACK}:{gateway.plan.admin_port}/stats"
    async with session.get(url, params={"filter": wanted, "format": "json"}) as answer:
        found = json.loads(await answer.text())["stats"]
    return {entry["name"]: entry["value"] for entry in found if "value" in entry}
