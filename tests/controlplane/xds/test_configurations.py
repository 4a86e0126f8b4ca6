"""Rollouts over the discovery stream, with real servers: canary, refusal, going back, and what survives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.controlplane.xds.test_processes import PATIENCE_S, Plant, plant
from tests.support.black_box import Site
from tests.support.controlplane import POOL, picker_config

pytestmark = [pytest.mark.integration, pytest.mark.slow]

__all__ = ["plant"]

ALPHA = {"type": "topology-affinity-scorer"}
"""Pickers take it if a flag allows it."""


async def command(plant: Plant, *words: str) -> str:
    return await asyncio.to_thread(plant.command.says, *words)


async def publish(plant: Plant, weight: float, rollout: str = "all", **more: Any) -> None:
    document = picker_config(weight, rollout=rollout) | more
    await asyncio.to_thread(plant.command.says, "apply", "-", text=yaml.safe_dump_all([POOL, document]))


async def status(plant: Plant) -> str:
    return await command(plant, "rollout", "status", "standard")


async def until_status(plant: Plant, holds: Callable[[str], bool]) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while not holds(said := await status(plant)):  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.1)
    return said


async def running(site: Site) -> str:
    """Document and number of what a picker runs."""
    page = json.loads(await site.page("/debug/config"))
    return str(page["reload"]["revision"]).partition("@")[0]


async def until_running(site: Site, revision: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await running(site) != revision:  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.05)


async def test_a_revision_goes_from_a_canary_to_all_and_what_it_refuses_stays_there(plant: Plant) -> None:
    async with plant.picker() as one, plant.picker(name="picker-2") as two:
        await publish(plant, 2)
        for site in (one, two):
            await until_running(site, "standard/1")
        await until_status(plant, lambda said: "is complete" in said)
        await one.ask({"model": "m", "prompt": "x"})
        (record,) = one.picker.decisions.recent(1)
        assert record["config"] == one.picker.reloader.revision
        assert record["config"].startswith("standard/1@")

        await publish(plant, 5, "1")
        said = await until_status(plant, lambda said: "1 of 2 workers run it" in said)
        assert "canary 1 is canary" in said
        runs = {await running(site): site for site in (one, two)}
        assert set(runs) == {"standard/1", "standard/2"}
        await command(plant, "rollout", "promote", "standard")
        await until_running(runs["standard/1"], "standard/2")
        await until_status(plant, lambda said: "is complete" in said)

        # Judged well by the control plane, which leaves plugins of Alpha stability to the pickers.
        alpha = [{"type": "queue-scorer"}, {"type": "prefix-cache-scorer"}, ALPHA]
        await publish(plant, 7, "1", plugins=alpha)
        said = await until_status(plant, lambda said: "is halted" in said)
        assert "refuses it: plugins[2]" in said
        assert [await running(site) for site in (one, two)] == ["standard/2", "standard/2"]
        await command(plant, "rollout", "back", "standard")
        for site in (one, two):
            await until_running(site, "standard/4")
        await until_status(plant, lambda said: "is complete" in said)


async def test_a_picker_starts_from_its_last_configuration_and_converges(plant: Plant) -> None:
    async with plant.picker() as site:
        await publish(plant, 2)
        await until_running(site, "standard/1")
        await until_status(plant, lambda said: "is complete" in said)
        await asyncio.to_thread(plant.kill_xds)
    async with plant.picker() as site:
        assert await running(site) == "standard/1"
        await publish(plant, 5)
        await asyncio.to_thread(plant.start_xds)
        await until_running(site, "standard/2")
        await until_status(plant, lambda said: "is complete" in said)
