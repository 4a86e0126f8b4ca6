"""How full a pool is under load, as the shipped wiring sees it: real servers' queues, picker, Envoy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.simulated import Rig, running, underway
from tests.support.waiting import until

pytestmark = pytest.mark.integration

SATURATION = "llm_d_epp_flow_control_pool_saturation"
REPLICAS = 2
HELD = """
pools:
  - name: pool
    models: [tiny]
    objectives: {batch: -1}
    simulator:
      replicas: 2
      profile: instant
      flags: [--max-num-seqs, "1", --time-to-first-token, 10m]
"""
"""Servers that run one request each, and do not end it. The picker is configured by nothing."""
SELDOM_SCRAPED = """
    picker:
      flags: [--refresh-metrics-interval, 10m]
      config:
        plugins:
        - {type: queue-scorer}
        - {type: utilization-detector, parameters: {queueDepthThreshold: 10, metricsStalenessThreshold: 1h}}
        flowControl: {saturationDetector: {pluginRef: utilization-detector}}
"""


async def measured(rig: Rig, saturation: float) -> None:
    """Until the picker takes its pool to be so full."""

    async def reached() -> bool:
        return await rig.metric(SATURATION) == saturation

    await until(reached)


async def sent(rig: Rig, requests: int) -> None:
    """Until the servers have got so many requests."""

    async def arrived() -> bool:
        return sum(row["running"] + row["waiting"] for row in await rig.replicas()) == requests

    await until(arrived)


async def test_a_loaded_pool_is_saturated_by_the_wiring_that_is_shipped(tmp_path: Path) -> None:
    async with running(HELD, tmp_path) as rig:
        await measured(rig, 0)
        # One runs and two of five wait, then one runs and five wait, at each server.
        async with underway(rig.served(f"{number}") for number in range(3 * REPLICAS)):
            await sent(rig, 3 * REPLICAS)
            await measured(rig, 2 / 5)
            async with underway(rig.served(f"{number}") for number in range(3 * REPLICAS)):
                await sent(rig, 6 * REPLICAS)
                await measured(rig, 1)
                assert await rig.status("batch", x_llm_d_inference_objective="batch") == 429
        await measured(rig, 0)


async def test_what_was_sent_since_the_last_scrape_saturates_a_pool(tmp_path: Path) -> None:
    async with running(HELD + SELDOM_SCRAPED, tmp_path) as rig:
        await measured(rig, 0)
        scraped = [row["metrics_asked"] for row in await rig.replicas()]
        async with underway(rig.served(f"{number}") for number in range(10 * REPLICAS)):
            await sent(rig, 10 * REPLICAS)
            assert await rig.metric(SATURATION) == 1
            assert await rig.status("batch", x_llm_d_inference_objective="batch") == 429
            assert [row["metrics_asked"] for row in await rig.replicas()] == scraped
            assert sum(row["running"] + row["waiting"] for row in await rig.replicas()) == 10 * REPLICAS
        await measured(rig, 0)
