"""A new configuration under traffic, through a real Envoy: in use soon, nothing lost, mistakes ignored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from cli.local.gateway import Gateway
from tests.support.gateway import started_gateway
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RATE = 200

CONFIG = """
pools:
  - name: pool
    models: [tiny]
    simulator: {replicas: 4, profile: instant}
"""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A small gateway, ready."""
    async with started_gateway(CONFIG, tmp_path) as running:
        yield running


class Traffic:
    """Requests at a steady rate until it is told to end, half of which repeat one of a few long prompts."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = f"{url}/v1/chat/completions"
        self._prompts = [f"group {i} " + "word " * 800 for i in range(8)]
        self.ends = False
        self.answers: list[tuple[int, int]] = []
        """Status and cached tokens, in order of completion."""

    async def run(self) -> None:
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            number = 0
            while not self.ends:
                await asyncio.sleep(max(0.0, started + number / RATE - time.monotonic()))
                group.create_task(self._ask(number))
                number += 1

    async def _ask(self, number: int) -> None:
        content = self._prompts[number % 8] if number % 2 else f"{number} something else"
        body = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": content}]}
        async with self._session.post(self._url, json=body) as answer:
            document = await answer.json()
            cached = 0
            if answer.status == 200:
                cached = document["usage"]["prompt_tokens_details"]["cached_tokens"]
            self.answers.append((answer.status, cached))


def swap(file: Path, document: dict[str, Any] | str) -> None:
    """Replace a file atomically."""
    text = document if isinstance(document, str) else yaml.safe_dump(document)
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


async def page(session: aiohttp.ClientSession, port: int, path: str) -> dict[str, Any]:
    """A debug page."""
    async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
        document: dict[str, Any] = await answer.json()
        return document


async def until_revision(session: aiohttp.ClientSession, port: int, other_than: str) -> str:
    """The revision that newest decisions name once it is another one."""

    async def found() -> str:
        (decision,) = (await page(session, port, "/debug/decisions?limit=1"))["decisions"]
        return "" if decision["config"] == other_than else str(decision["config"])

    return await until(found)


async def test_weights_change_under_traffic_without_a_lost_request(gateway: Gateway) -> None:
    pool = gateway.plan.pools[0]
    document = yaml.safe_load(pool.picker_file.read_text())
    async with aiohttp.ClientSession() as session:
        traffic = Traffic(session, gateway.plan.url)
        running = asyncio.create_task(traffic.run())
        await until(lambda: len(traffic.answers) >= 2 * RATE)
        first = (await page(session, pool.metrics_port, "/debug/config"))["reload"]["revision"]

        document["schedulingProfiles"][0]["plugins"][0]["weight"] = 0.25
        swap(pool.picker_file, document)
        second = await until_revision(session, pool.metrics_port, other_than=first)
        before = len(traffic.answers)

        swap(pool.picker_file, "plugins: [")

        async def refusal() -> dict[str, Any]:
            found: dict[str, Any] = (await page(session, pool.metrics_port, "/debug/config"))["reload"]
            return found if found["refused"] else {}

        reload = await until(refusal)
        assert reload["revision"] == second
        await until(lambda: len(traffic.answers) >= before + RATE)
        assert "line" in reload["refused"][0]
        traffic.ends = True
        await running

    assert {status for status, _ in traffic.answers} == {200}
    after = [cached for _, cached in traffic.answers[before:]]
    hits = sum(cached > 0 for cached in after) / len(after)
    assert hits > 0.45, "half of the requests repeat a prompt, and its prefix is still known"
