"""An endpoint that leaves and comes back behind a real Envoy while its requests run: true ledgers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.simulated import running, underway
from tests.support.waiting import until

pytestmark = pytest.mark.integration

CONFIG = """
pools:
  - name: pool
    models: [tiny]
    simulator:
      replicas: 2
      profile: instant
      flags: [--time-to-first-token, 1ms, --inter-token-latency, 500ms]
"""
LONG = 1000
"""Tokens that take minutes at first, and no time once the server has become fast."""


async def test_requests_of_an_endpoint_before_and_after_it_flapped_are_counted_apart(tmp_path: Path) -> None:
    async with running(CONFIG, tmp_path) as rig:
        flapping, other = rig.listed()
        await rig.list_endpoints([flapping])
        await rig.act("hang", {}, 0)

        async def booked() -> float:
            found: float = (await rig.endpoints())[flapping["name"]]["inflight"]
            return found

        async def open_requests() -> float:
            return await rig.metric("llm_d_epp_request_running")

        async with underway(rig.served(f"{number} before") for number in range(5)) as before:

            async def five() -> bool:
                return await booked() == 5

            await until(five)
            await rig.list_endpoints([other])
            assert (await rig.endpoints())[other["name"]]["inflight"] == 0
            await rig.list_endpoints([flapping])
            assert await booked() == 0

            async with underway(
                rig.served(f"{number} after", max_tokens=LONG) for number in range(2)
            ) as after:

                async def two() -> bool:
                    return await booked() == 2

                await until(two)
                assert await open_requests() == 7
                await rig.act("hang", {"seconds": 0}, 0)
                for task in before:
                    assert await task == flapping["name"]

                async def first_over() -> bool:
                    assert await booked() == 2, "the first five were the old endpoint's"
                    return await open_requests() == 2

                await until(first_over)
                assert await booked() == 2
                await rig.act("config", {"inter-token-latency": "0s", "time-to-first-token": "1us"}, 0)
                for task in after:
                    assert await task == flapping["name"]

        async def all_over() -> bool:
            assert await booked() >= 0
            return await open_requests() == 0

        await until(all_over)
        row = (await rig.endpoints())[flapping["name"]]
        assert (row["inflight"], row["inflightTokens"]) == (0, 0)
        assert row["unseen"] >= 0
