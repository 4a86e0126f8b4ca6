"""Servers that no longer say how busy they are, seen from outside: silence does not look like idleness."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.black_box import Pod, Site, refusal

pytestmark = pytest.mark.integration

COMPLETION = {"model": "m", "prompt": "test"}
CONFIG = "plugins: [{type: queue-scorer}]\n"
SOON = ("--metrics-staleness-threshold", "300ms")


def is_fresh(site: Site, number: int) -> bool:
    """Whether the picker trusts what it has heard of a server."""
    endpoint = site.picker.table.at(site.key(number))
    assert endpoint is not None
    return bool(site.picker.table.fresh[endpoint.slot])


async def silenced(site: Site, number: int) -> None:
    """A server falls silent, and the picker no longer counts on what it has said."""
    site.pods[number].hangs = True
    endpoint = site.picker.table.at(site.key(number))
    assert endpoint is not None
    table = site.picker.table
    while table.fresh[endpoint.slot] or table.trust[endpoint.slot]:  # noqa: ASYNC110 - the picker has no event for it
        await asyncio.sleep(0.01)


async def test_a_server_that_falls_silent_loses_its_requests_and_delays_no_other(tmp_path: Path) -> None:
    pods = (Pod(0), Pod(3), Pod(5), Pod(9))
    async with Site(tmp_path, *pods, config=CONFIG, flags=SOON) as site:
        assert await site.served(COMPLETION) == site.key(0)
        await silenced(site, 0)
        assert [is_fresh(site, number) for number in range(4)] == [False, True, True, True]
        assert {await site.served(COMPLETION) for _ in range(10)} == {site.key(1)}

        site.pods[0].hangs = False
        while not is_fresh(site, 0):  # noqa: ASYNC110 - the picker has no event for it
            await asyncio.sleep(0.01)
        assert await site.served(COMPLETION) == site.key(0)


async def test_silent_servers_serve_what_no_other_can(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(0), Pod(3), config=CONFIG, flags=SOON) as site:
        for number in (0, 1):
            await silenced(site, number)
        assert await site.served(COMPLETION) in {site.key(0), site.key(1)}
        assert await site.picked(COMPLETION, subset=[site.key(0)]) == site.key(0)
        status, *_ = refusal(await site.ask(COMPLETION, subset=["10.0.0.9:1"]))
        assert status == 503
        assert await site.sample("llm_d_epp_average_queue_size") is None
