"""A real Envoy takes dynamic metadata with the end of a response body, and its access log shows it."""

import asyncio

import pytest

from tests.dataplane.extproc.gateway import gateway
from tests.dataplane.extproc.vectors.envoy import ENVOY, LISTENERS, REQUESTS
from tests.support.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not ENVOY.exists(), reason="Envoy is not installed"),
]

SEES_RESPONSE_BODIES = [name for name, listener in LISTENERS.items() if listener.response != "NONE"]


async def test_every_mode_that_shows_response_bodies_carries_it(tmp_path):
    cost = {"billing": {"cost": 10}}
    async with gateway(tmp_path) as edge:
        for count, listener in enumerate(SEES_RESPONSE_BODIES, 1):
            answer = await edge.send(listener, REQUESTS["body"], needs_request_body=False, metadata=cost)
            assert (answer.status, answer.body) == (200, b'{"model":"a"}'), listener
            assert await logged(edge, count) == ["10"] * count, listener
        answer = await edge.send("full duplex", REQUESTS["body"], needs_request_body=False)
        assert answer.status == 200
        assert (await logged(edge, count + 1))[-1] == "-"
        await edge.assert_content()


async def test_trailers_carry_it_when_they_bring_the_end(tmp_path):
    async with gateway(tmp_path) as edge:
        request = REQUESTS["trailers both ways"]
        metadata = {"billing": {"cost": 7}}
        answer = await edge.send("full duplex", request, needs_request_body=False, metadata=metadata)
        assert (answer.status, answer.body) == (200, b"abcde")
        assert await logged(edge, 1) == ["7"]
        await edge.assert_content()


async def logged(edge, count: int) -> list[str]:
    """The costs in Envoy's access log, as soon as there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            log = edge.envoy.access_log
            lines = (await asyncio.to_thread(log.read_text)).splitlines() if log.exists() else []
            if len(lines) >= count:
                return lines
            await asyncio.sleep(0.02)
