"""One hot prefix at three times what a server computes: real servers' queues, a real picker, a real Envoy.

A server computes 4000 prompt tokens per second, one after the other. A request brings 400 new tokens behind
1600 that all share; 30 of them per second are three times what one server carries.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.simulated import Rig, running

pytestmark = [pytest.mark.integration, pytest.mark.calm]

TOKENS_PER_S = 4000
BUDGET_S = 0.5
RATE = 30
SECONDS = 4
ALLOWED_EXCESS_S = 1.0

PROFILE = """
description: a server that computes 4000 prompt tokens per second
max-model-len: 131072
max-num-seqs: 256
max-num-batched-tokens: 400
kv-cache-size: 25700
step: {base: 0s, prefill-token: 250us, decode-sequence: 0s, context-token: 0s}
"""
CONFIG = """
pools:
  - name: pool
    models: [tiny]
    simulator: {{replicas: 4, profile: {profile}}}
    picker:
      config:
        plugins:
        - type: prefix-cache-affinity-filter
          parameters:
            affinityThreshold: 0.7
            maxTTFTPenaltyMs: 500
            consolidateWithinMs: 200
            peakPrefillThroughput: 4000
        - type: token-load-scorer
        schedulingProfiles:
        - name: default
          plugins: [{{pluginRef: prefix-cache-affinity-filter}}, {{pluginRef: token-load-scorer}}]
"""
HOT = ("a system prompt that everybody sends".ljust(40, ".") * 160)[: 1600 * 4]


def prompt(number: int) -> str:
    """The hot prefix and a question that nobody else asks."""
    return HOT + f"question {number} ".ljust(400 * 4, "?")


async def longest_excess_s(rig: Rig, over: asyncio.Event) -> float:
    """How long at a stretch some endpoint is estimated to be slower than the best by more than the budget."""
    longest, since = 0.0, None
    while not over.is_set():
        waits = [row["inflightTokens"] / TOKENS_PER_S for row in (await rig.endpoints()).values()]
        now = time.monotonic()
        if max(waits) - min(waits) <= BUDGET_S:
            since = None
        else:
            since = now if since is None else since
            longest = max(longest, now - since)
        await asyncio.sleep(0.05)
    return longest


async def test_a_hot_prefix_spreads_within_its_budget_and_goes_back_to_one_server(tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text(PROFILE)
    async with running(CONFIG.format(profile=profile), tmp_path) as rig:
        home = await rig.served(prompt(0))
        assert [await rig.served(prompt(number)) for number in range(1, 4)] == [home] * 3

        over = asyncio.Event()
        watching = asyncio.create_task(longest_excess_s(rig, over))
        tasks: list[asyncio.Task[str]] = []
        began = time.monotonic()
        for number in range(RATE * SECONDS):
            await asyncio.sleep(began + number / RATE - time.monotonic())
            tasks.append(asyncio.create_task(rig.served(prompt(100 + number))))
        served = await asyncio.gather(*tasks)
        over.set()
        joined = next(number for number, name in enumerate(served) if name != home)
        assert joined <= BUDGET_S * RATE
        assert len(set(served)) >= 3
        assert await watching <= ALLOWED_EXCESS_S

        calm = [await rig.served(prompt(1000 + number)) for number in range(12)]
        assert len(set(calm)) == 1, "it goes back to one server"
