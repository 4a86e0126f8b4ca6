"""Bursts through a real Envoy to simulated servers: everybody gets a fair share of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.simulated import Rig, running, underway
from tests.support.waiting import until

pytestmark = pytest.mark.integration


def config(replicas: int, interval: str, *flags: str) -> str:
    """Equal servers that answer nothing before the test is over, and are seldom looked at."""
    return f"""
pools:
  - name: pool
    models: [tiny]
    simulator:
      replicas: {replicas}
      profile: instant
      flags: [--time-to-first-token, 10m, {", ".join(flags)}]
    picker:
      flags: [--refresh-metrics-interval, {interval}]
"""


async def measured(rig: Rig) -> None:
    """Until the picker has heard of every server."""

    async def heard() -> bool:
        return all(row["fresh"] for row in (await rig.endpoints()).values())

    await until(heard)


async def at_servers(rig: Rig) -> list[int]:
    """Requests at each replica, running or waiting."""
    return [row["running"] + row["waiting"] for row in await rig.replicas()]


async def test_a_thousand_requests_between_two_scrapes_spread_over_equal_servers(tmp_path: Path) -> None:
    burst, replicas = 1000, 8
    async with running(config(replicas, "10m"), tmp_path) as rig:
        await measured(rig)
        scraped = [row["metrics_asked"] for row in await rig.replicas()]
        async with underway(rig.served(f"{number} of many") for number in range(burst)) as asked:

            async def arrived() -> bool:
                assert not any(task.done() for task in asked), "nobody is answered yet"
                return sum(await at_servers(rig)) == burst

            await until(arrived)
            shares = await at_servers(rig)
            assert max(shares) <= 1.15 * burst / replicas
            assert max(shares) - min(shares) <= 2, "not by luck: each decision counts those before it"
            assert [row["metrics_asked"] for row in await rig.replicas()] == scraped
            rows = await rig.endpoints()
            assert [rows[f"pool-{number}"]["inflight"] for number in range(replicas)] == shares

        async def over() -> bool:
            return await rig.metric("llm_d_epp_inflight_requests") == 0

        await until(over)
        assert await at_servers(rig) == [0] * replicas


async def test_load_of_the_last_scrape_and_what_was_sent_since_count_together(tmp_path: Path) -> None:
    direct, burst = 21, 30
    async with running(config(2, "2s", "--max-num-seqs", '"1"'), tmp_path) as rig:
        first = (await rig.replicas())[0]
        url = f"http://{first['address']}:{first['port']}/v1/completions"

        async def past_the_gateway(number: int) -> str:
            async with rig.session.post(url, json={"model": "tiny", "prompt": f"{number}"}) as answer:
                return await answer.text()

        async with underway(past_the_gateway(number) for number in range(direct)):

            async def arrived() -> bool:
                return await at_servers(rig) == [direct, 0]

            await until(arrived)
            await looked_at(rig, "pool-0", waiting=direct - 1)
            async with underway(rig.served(f"{number} of many") for number in range(burst)):

                async def all_there() -> bool:
                    return sum(await at_servers(rig)) == direct + burst

                await until(all_there)
                loaded, idle = await at_servers(rig)
                # Queues of 20 and none, and 30 more: 5 and 25 make both 25 deep.
                assert abs((loaded - direct) - 5) <= 2
                assert loaded + idle == direct + burst


async def looked_at(rig: Rig, name: str, *, waiting: int) -> None:
    """Until the picker's last look at an endpoint has found so many waiting."""

    async def heard() -> bool:
        return bool((await rig.endpoints())[name]["waiting"] == waiting)

    await until(heard)
