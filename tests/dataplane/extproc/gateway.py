"""A real Envoy between a client and an upstream, with our server and recording exchanges beside it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Ending
from dataplane.extproc.server import ExtProcServer, ServerOptions
from dataplane.extproc.service import PROCESS_METHOD, ExternalProcessor, ProcessorLimits
from tests.dataplane.extproc.vectors.envoy import (
    Envoy,
    Message,
    Upstream,
    exchange,
    running_envoy,
    running_upstream,
)
from tests.support.exchanges import RecordingExchange
from tests.support.waiting import PATIENCE_S

MIB = 1024 * 1024
DECISION = Proceed(
    set_headers=[("x-picked", b"10.0.0.1:8000"), ("x-binary", b"caf\xc3\xa9")],
    remove_headers=["x-secret"],
    metadata={"envoy.lb": {"x-gateway-destination-endpoint": "10.0.0.1:8000"}},
    clear_route_cache=True,
)
ANSWER = Proceed(set_headers=[("x-went-into-resp-headers", b"true")])


class Gateway:
    """Envoy between a client and an upstream, with our server beside it."""

    def __init__(self, envoy: Envoy, upstream: Upstream, made: list[RecordingExchange]) -> None:
        self.envoy = envoy
        self.upstream = upstream
        self.made = made
        self.settings: dict = {}

    async def send(self, listener: str, request: bytes, **settings) -> Message:
        """One request; ``settings`` are those of the exchange that handles it."""
        self.made.clear()
        self.upstream.seen.clear()
        self.settings = {"decision": DECISION, "response": ANSWER, **settings}
        return await exchange(self.envoy.ports[listener], request)

    async def ending(self) -> Ending:
        """How the one exchange that was made has ended."""
        (made,) = self.made
        async with asyncio.timeout(PATIENCE_S):
            while not made.endings:  # noqa: ASYNC110 - the exchange has no event for it
                await asyncio.sleep(0.005)
        return made.endings[0]

    async def assert_content(self) -> None:
        """Envoy has taken nothing amiss."""
        assert await asyncio.to_thread(self.envoy.counter, "streams_started") > 0
        for counter in ("spurious_msgs_received", "rejected_header_mutations", "message_timeouts"):
            assert await asyncio.to_thread(self.envoy.counter, counter) == 0, counter


@asynccontextmanager
async def gateway(folder) -> AsyncIterator[Gateway]:
    made: list[RecordingExchange] = []

    def make() -> RecordingExchange:
        made.append(RecordingExchange(**built.settings))
        return made[-1]

    processor = ExternalProcessor(make, ProcessorLimits(max_body_bytes=8 * MIB))
    server = ExtProcServer(ServerOptions(host="127.0.0.1", port=0), {PROCESS_METHOD: processor})
    await server.start()
    try:
        async with running_upstream() as (upstream, port), running_envoy(folder, server.port, port) as envoy:
            built = Gateway(envoy, upstream, made)
            yield built
            async with asyncio.timeout(PATIENCE_S):
                while processor.inflight:  # noqa: ASYNC110 - the server has no event for it
                    await asyncio.sleep(0.005)
            assert processor.budget.used_bytes == 0
            assert processor.refused == 0
    finally:
        await server.stop()
