"""Many requests between two looks at the servers, seen from outside: nobody gets more than a fair share."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.black_box import Pod, Site, destination, request_body, request_headers

pytestmark = pytest.mark.integration

LOOKS_ONCE = ("--refresh-metrics-interval", "60s", "--metrics-staleness-threshold", "120s")
BURST = 1000


async def test_a_burst_between_two_scrapes_spreads_over_equal_servers(tmp_path: Path) -> None:
    pods = [Pod() for _ in range(8)]
    async with Site(tmp_path, *pods, flags=LOOKS_ONCE) as site, AsyncExitStack() as open_streams:
        picks: Counter[str] = Counter()
        for number in range(BURST):
            messages = (request_headers(), request_body({"model": "m", "prompt": f"{number} x"}, end=True))
            answer = await open_streams.enter_async_context(site.asked(*messages))
            picks[destination(answer)] += 1
        assert site.picker.table.inflight.sum() == BURST
        assert max(picks.values()) <= 1.15 * BURST / len(pods)

    assert site.picker.table.inflight.sum() == 0


async def test_a_burst_fills_up_the_less_loaded_servers_first(tmp_path: Path) -> None:
    async with (
        Site(tmp_path, Pod(waiting=20), Pod(), Pod(), flags=LOOKS_ONCE) as site,
        AsyncExitStack() as open_streams,
    ):
        picks: Counter[str] = Counter()
        for number in range(30):
            messages = (request_headers(), request_body({"model": "m", "prompt": f"{number} x"}, end=True))
            picks[destination(await open_streams.enter_async_context(site.asked(*messages)))] += 1
        assert picks[site.key(0)] == 0
        assert abs(picks[site.key(1)] - picks[site.key(2)]) <= 2
