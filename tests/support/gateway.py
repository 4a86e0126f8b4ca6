"""A whole gateway for tests: simulated servers, pickers and a real Envoy, on free ports and in a folder."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from cli.local.config import parse
from cli.local.gateway import Gateway
from cli.local.plan import make_plan
from dataplane.processes.ports import LOOPBACK, Ports


@asynccontextmanager
async def started_gateway(config: str, folder: Path) -> AsyncIterator[Gateway]:
    """The gateway of a configuration, ready; stopped when the block ends."""
    plan = make_plan(parse(config), folder, Ports(random.SystemRandom()))
    async with Gateway(plan, say=lambda _: None) as gateway:
        await gateway.start()
        yield gateway


async def envoy_counters(gateway: Gateway, session: aiohttp.ClientSession, wanted: str) -> dict[str, int]:
    """Envoy's counters whose names match."""
    url = f"http://{LOOPBACK}:{gateway.plan.admin_port}/stats"
    async with session.get(url, params={"filter": wanted, "format": "json"}) as answer:
        found = json.loads(await answer.text())["stats"]
    return {entry["name"]: entry["value"] for entry in found if "value" in entry}
