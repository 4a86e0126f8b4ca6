"""Clients that leave, through a real Envoy: the model server stops generating for them at once.

The server's own tokens are the clock: at ten milliseconds each, a request that is reset within 100 ms has
generated at most ten tokens more than its client has seen.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.simulated import Rig, running
from tests.support.waiting import until

pytestmark = pytest.mark.integration

CONFIG = """
pools:
  - name: pool
    models: [tiny]
    simulator:
      replicas: 1
      profile: instant
      flags: [--time-to-first-token, 1ms, --inter-token-latency, 10ms]
"""
LIMIT_TOKENS = 10
ATTEMPTS = 5
"""A busy machine may delay some; a proxy that leaves requests running delays all."""
ABORTED = 'vllm:request_success_total{engine="0",finished_reason="abort"'


async def tokens_after_leaving(rig: Rig) -> float:
    """Tokens that are generated for a client that no longer reads."""
    (replica,) = await rig.replicas()
    before = await rig.measured(replica, "vllm:generation_tokens_total")
    seen = 0
    async with rig.asked("a story", max_tokens=10_000, stream=True) as answer:
        async for line in answer.content:
            seen += line.startswith(b"data: {")
            if seen == 10:
                break
        answer.close()
    await idle(rig)
    return await rig.measured(replica, "vllm:generation_tokens_total") - before - seen


async def idle(rig: Rig) -> None:
    """Until the server generates for nobody, and the picker has heard of every end."""

    async def at_rest() -> bool:
        (replica,) = await rig.replicas()
        return replica["running"] == replica["waiting"] == 0

    async def forgotten() -> bool:
        return await rig.metric("llm_d_epp_request_running") == 0

    await until(at_rest)
    await until(forgotten)


async def test_generation_stops_when_the_client_leaves_its_stream(tmp_path: Path) -> None:
    async with running(CONFIG, tmp_path) as rig:
        assert min([await tokens_after_leaving(rig) for _ in range(ATTEMPTS)]) <= LIMIT_TOKENS
        (replica,) = await rig.replicas()
        assert await rig.measured(replica, ABORTED) == ATTEMPTS
        assert await rig.metric("llm_d_epp_inflight_requests") == 0

        decisions = (await rig.page("/debug/decisions"))["decisions"]
        assert [one["response"]["ending"] for one in decisions] == ["client-disconnect"] * ATTEMPTS
        await logged(rig, ATTEMPTS)


async def logged(rig: Rig, count: int) -> None:
    """Until the access log tells of so many clients that have left."""

    async def written() -> bool:
        lines = rig.plan.access_log.read_text().splitlines()
        flags = [json.loads(line)["flags"] for line in lines]
        return flags == ["DC"] * count

    await until(written)


async def test_a_client_that_leaves_before_the_first_token_takes_its_request_along(tmp_path: Path) -> None:
    slow = CONFIG.replace("--time-to-first-token, 1ms", "--time-to-first-token, 10m")
    async with running(slow, tmp_path) as rig:
        task = asyncio.create_task(rig.served("a story"))

        async def arrived() -> bool:
            return [row["running"] for row in await rig.replicas()] == [1]

        await until(arrived)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await idle(rig)
        (replica,) = await rig.replicas()
        assert await rig.measured(replica, ABORTED) == 1
        assert await rig.metric("llm_d_epp_inflight_requests") == 0
        await logged(rig, 1)
