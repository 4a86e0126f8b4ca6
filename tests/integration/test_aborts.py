"""Clients that leave at any moment: nothing stays booked, and nothing stays in memory."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from cli.local.gateway import Gateway
from tests.support.gateway import started_gateway
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

REQUESTS = 10_000
AT_ONCE = 40
MEMORY_GROWTH_CAP_KB = 8 * 1024
"""Less than a kilobyte for each request; arenas of the allocator grow by some megabytes on a busy machine."""

CONFIG = """
pools:
  - name: pool
    models: [tiny]
    simulator:
      replicas: 4
      profile: instant
      flags: [--time-to-first-token, 5ms, --inter-token-latency, 1ms]
"""

GAUGES = (
    "llm_d_epp_request_running",
    "llm_d_epp_inflight_requests",
    "llm_d_epp_inflight_tokens",
    "pointsman_extproc_streams_open",
)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A small gateway, ready."""
    async with started_gateway(CONFIG, tmp_path) as running:
        yield running


async def abort_one(port: int, rng: random.Random, number: int) -> None:
    """One request that is left before its headers, in its body, before or within its response, or after."""
    body = json.dumps(
        {
            "model": "tiny",
            "stream": rng.random() < 0.5,
            "max_tokens": 8,
            "messages": [{"role": "user", "content": f"{number} " + "word " * rng.randrange(400)}],
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()
    whole = head + body
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        moment = rng.random()
        if moment < 0.4:
            writer.write(whole[: rng.randrange(len(whole))])
            await asyncio.sleep(rng.random() * 0.002)
        else:
            writer.write(whole)
            await asyncio.sleep(rng.random() * 0.02)
            if moment > 0.9:
                await reader.read(rng.randrange(1, 4000))
        writer.transport.abort()
    finally:
        writer.close()


async def storm(port: int, count: int, seed: int) -> None:
    """``count`` aborted requests, ``AT_ONCE`` at a time."""
    rng = random.Random(seed)
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await abort_one(port, rng, number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def sums(metrics_port: int, names: Sequence[str] = GAUGES) -> dict[str, float]:
    """Sum over the series of each metric."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{metrics_port}/metrics") as answer,
    ):
        text = await answer.text()
    return {
        name: sum(float(m[1]) for m in re.finditer(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))
        for name in names
    }


async def settled(metrics_port: int) -> dict[str, float]:
    """The gauges once all are zero."""
    found: dict[str, float] = {}

    async def are_zero() -> bool:
        found.update(await sums(metrics_port))
        return not any(found.values())

    await until(are_zero, lambda: found)
    return found


def resident_kb(pid: int) -> int:
    """Resident memory of a process."""
    match = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1])


async def test_ten_thousand_aborted_requests_leave_nothing_behind(gateway: Gateway) -> None:
    plan = gateway.plan
    pool = plan.pools[0]
    picker = gateway.children["epp-pool"]
    # The index, the decision log and the allocator's arenas fill up first.
    await storm(plan.port, REQUESTS // 4, seed=1)
    await settled(pool.metrics_port)
    assert picker.pid is not None
    before = resident_kb(picker.pid)

    await storm(plan.port, REQUESTS, seed=2)

    assert await settled(pool.metrics_port) == dict.fromkeys(GAUGES, 0.0)
    assert resident_kb(picker.pid) - before < MEMORY_GROWTH_CAP_KB
    admitted = await sums(pool.metrics_port, ["llm_d_epp_request_total"])
    assert admitted["llm_d_epp_request_total"] > REQUESTS / 4, "the storm must reach the picker"
    question = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "still there?"}]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{plan.url}/v1/chat/completions", json=question) as answer,
    ):
        assert answer.status == 200
