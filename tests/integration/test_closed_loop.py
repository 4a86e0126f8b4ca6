"""A closed loop of 800 clients with requests of one length: no waves that pile up on some servers.

The same simulated servers are balanced by the picker and by Envoy's least request, in turns. Times to first
token are those of the servers' own engines, so that the machine's pace is in neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import pytest

from benchmarks.envoy_config import Balancing, bootstrap
from benchmarks.envoy_process import Envoy
from benchmarks.epp_process import Epp
from benchmarks.stats import percentile
from simulator.app import Fleet
from simulator.sequence import Sequence
from tests.simulator.driving import running_fleet

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.calm]

REPLICAS = 8
CLIENTS = 800
TURNS = 2
"""Requests of each client, one after the other."""
RAMP_S = 1.5
"""In which the clients begin: Envoy's least request does not count what still waits for a connection."""
PROMPT_TOKENS = 512
OUTPUT_TOKENS = 32
LIMIT = 1.1
ROUNDS = 10
"""At most: one in which the machine is not busy with something else is enough."""


@contextmanager
def first_tokens(fleet: Fleet) -> Iterator[list[float]]:
    """Seconds from arrival to first token of every request, as the engines count them."""
    seen: list[float] = []

    def observing(told: Callable[[Sequence], None]) -> Callable[[Sequence], None]:
        def first_token(sequence: Sequence) -> None:
            seen.append(sequence.first_token_at - sequence.arrived_at)
            told(sequence)

        return first_token

    with pytest.MonkeyPatch.context() as patch:
        for replica in fleet.replicas:
            metrics = replica.server.metrics
            patch.setattr(metrics, "first_token", observing(metrics.first_token))
        yield seen


class Loop:
    """The clients; every prompt they send is new."""

    def __init__(self, fleet: Fleet, session: aiohttp.ClientSession) -> None:
        self.fleet = fleet
        self.session = session
        self.sent = 0

    async def p99_s(self, address: str) -> float:
        """The 99th percentile of the time to first token through one gateway."""
        with first_tokens(self.fleet) as seen:
            delays = (RAMP_S * number / CLIENTS for number in range(CLIENTS))
            await asyncio.gather(*(self._client(address, delay) for delay in delays))
        assert len(seen) == CLIENTS * TURNS
        return percentile(sorted(seen), 99)

    async def _client(self, address: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        for _ in range(TURNS):
            self.sent += 1
            prompt = f"{self.sent} ".ljust(PROMPT_TOKENS * 4, "x")
            body = {"model": "base", "prompt": prompt, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
            async with self.session.post(f"http://{address}/v1/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    """Servers and clients."""
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with (
        running_fleet(replicas=REPLICAS, profile="h100-8b") as fleet,
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
    ):
        yield Loop(fleet, session)


async def test_the_slowest_first_tokens_come_as_soon_as_by_least_request(tmp_path: Path, loop: Loop) -> None:
    addresses = [f"{replica.address}:{replica.port}" for replica in loop.fleet.replicas]
    with ExitStack() as stack:
        opened = asyncio.to_thread

        async def envoy(name: str, balancing: Balancing, ext_proc: str = "") -> Envoy:
            config = bootstrap(addresses, balancing, ext_proc=ext_proc)
            return await opened(lambda: stack.enter_context(Envoy(name, config, tmp_path)))

        picker = await opened(lambda: stack.enter_context(Epp(addresses, tmp_path)))
        picked = await envoy("picked", Balancing.PICKED, picker.address)
        least = await envoy("least", Balancing.LEAST_REQUEST)
        ratios: list[float] = []
        while len(ratios) < ROUNDS and min(ratios, default=2.0) > LIMIT:
            by_picker = await loop.p99_s(picked.address)
            ratios.append(by_picker / await loop.p99_s(least.address))
        assert min(ratios) <= LIMIT
