"""Metrics that hang, that nobody wants, and what reading them costs: a real picker and simulated servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cpu import process_seconds
from tests.support.simulated import Rig, running
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.calm]

INTERVAL_MS = 300


def config(replicas: int, scorer: str, *flags: str, model: str = "tiny") -> str:
    """Equal servers behind a picker that decides by one scorer."""
    return f"""
pools:
  - name: pool
    models: [{model}]
    simulator: {{replicas: {replicas}, profile: instant}}
    picker:
      flags: [{", ".join(flags)}]
      config: {{plugins: [{{type: {scorer}}}]}}
"""


async def oldest_of_the_others(rig: Rig, stuck: str) -> float:
    """Greatest age in milliseconds that the data of any other endpoint reaches within some scrapes."""
    begun = (await rig.replicas())[0]["metrics_asked"]
    oldest = 0.0
    while (await rig.replicas())[0]["metrics_asked"] < begun + 2:
        rows = await rig.endpoints()
        assert not rows.pop(stuck)["fresh"]
        assert all(row["fresh"] for row in rows.values())
        oldest = max(oldest, *(row["dataAgeMs"] for row in rows.values()))
    return oldest


async def test_one_server_whose_metrics_hang_ages_alone(tmp_path: Path) -> None:
    flags = ("--refresh-metrics-interval", f"{INTERVAL_MS}ms", "--metrics-staleness-threshold", "900ms")
    async with running(config(20, "queue-scorer", *flags), tmp_path) as rig:
        await rig.act("config", {"hang-metrics": True}, 7)

        async def stale() -> bool:
            return not (await rig.endpoints())["pool-7"]["fresh"]

        await until(stale)
        # The least of a few looks: a machine that is busy for once is not a scrape that waits for another.
        assert min([await oldest_of_the_others(rig, "pool-7") for _ in range(2)]) <= 2 * INTERVAL_MS
        assert (await rig.page("/debug/endpoints"))["fresh"] == 19

        await rig.act("config", {"hang-metrics": False}, 7)

        async def fresh() -> bool:
            return bool((await rig.endpoints())["pool-7"]["fresh"])

        await until(fresh)


async def test_reading_a_hundred_large_pages_a_second_costs_little(tmp_path: Path) -> None:
    # A page repeats the model's name in every line.
    flags = ("--refresh-metrics-interval", "200ms")
    async with running(config(100, "queue-scorer", *flags, model="m" * 110), tmp_path) as rig:
        replica = (await rig.replicas())[0]
        async with rig.session.get(f"http://{replica['address']}:{replica['port']}/metrics") as answer:
            assert len(await answer.read()) >= 40_000
        pid = rig.gateway.children["epp-pool"].pid
        assert pid is not None

        async def pages() -> int:
            return sum(row["metrics_asked"] for row in await rig.replicas())

        first, cpu_before = await pages(), process_seconds(pid)

        async def enough() -> bool:
            return await pages() >= first + 1000

        await until(enough)
        read, cpu = await pages() - first, process_seconds(pid) - cpu_before
        assert cpu / read * 100 < 0.05, "CPU time of 100 pages, at one second each: less than 5 % of a core"


async def test_nobody_is_scraped_when_nothing_is_decided_by_it(tmp_path: Path) -> None:
    async with running(config(3, "active-request-scorer"), tmp_path) as rig:
        for number in range(20):
            await rig.served(f"{number} of many")
        assert [row["metrics_asked"] for row in await rig.replicas()] == [0, 0, 0]
