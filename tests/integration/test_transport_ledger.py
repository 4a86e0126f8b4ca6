"""Every way to reach a picker books and releases in one ledger: any mix of them, however it ends.

A real Envoy with a listener for each body mode stands between raw clients, a picker and a simulated server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epp.app import Picker
from epp.options import parse_args
from simulator.replica import Replica
from tests.dataplane.extproc.vectors.envoy import ENVOY, LISTENERS, Envoy, post, post_chunked, running_envoy
from tests.simulator.driving import running_fleet
from tests.support.black_box import HEAD
from tests.support.vllm_messages import GENERATE, encoded
from tests.support.waiting import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not ENVOY.exists(), reason="Envoy is not installed"),
]

CONFIG = f"""{HEAD}
plugins:
- {{type: active-request-scorer}}
- {{type: token-load-scorer}}
- {{type: openai-parser}}
- {{type: vllmgrpc-parser}}
requestHandler: {{parsers: [{{pluginRef: openai-parser}}, {{pluginRef: vllmgrpc-parser}}]}}
"""
BODY = json.dumps({"model": "base", "prompt": "four byte words in a row", "max_tokens": 2}).encode()
GET = b"GET /v1/models HTTP/1.1\r\nHost: gateway.example\r\nConnection: close\r\n\r\n"
OVER_HTTP = {
    "whole body": post("/v1/completions", BODY),
    "body in pieces": post_chunked("/v1/completions", BODY[:10], BODY[10:]),
    "headers alone": GET,
}
REQUESTS = (*OVER_HTTP, "gRPC")
WAYS = [(listener, request) for listener in LISTENERS for request in REQUESTS]


class Edge:
    """What one example works on."""

    def __init__(self, picker: Picker, replica: Replica, envoy: Envoy) -> None:
        self.picker = picker
        self.replica = replica
        self.envoy = envoy

    @property
    def booked(self) -> float:
        """Requests in flight by the ledger that decides."""
        return float(self.picker.table.inflight.sum())

    async def ask(self, listener: str, request: str) -> None:
        """One exchange, whatever the answer is."""
        port = self.envoy.ports[listener]
        if request == "gRPC":
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                method: Any = channel.unary_unary(f"/{GENERATE.lstrip('/')}")
                # The simulated server speaks no gRPC, so that there is only an error to hear.
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await method(encoded("GenerateRequest", text="hello")[5:])
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(OVER_HTTP[request])
            await reader.read()
        finally:
            writer.transport.abort()

    async def mixed(self, ways: Sequence[tuple[tuple[str, str], bool]]) -> None:
        """Exchanges side by side at a server that hangs; some are left, the others answered once it wakes."""
        table = self.picker.table
        self.replica.hang(None)
        tasks = [asyncio.create_task(self.ask(*way)) for way, _ in ways]
        await until(lambda: self.booked == len(ways))
        leaving = [task for task, (_, leaves) in zip(tasks, ways, strict=True) if leaves]
        for task in leaving:
            task.cancel()
        await until(lambda: self.booked == len(ways) - len(leaving))
        self.replica.hang(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: self.picker.processor.inflight == 0)
        assert not table.inflight.any()
        assert not table.inflight_tokens.any()
        assert table.unseen.min() >= 0
        assert [task for task in tasks if not task.cancelled() and task.exception()] == []


@asynccontextmanager
async def edge(folder: Path) -> AsyncIterator[Edge]:
    """A simulated server, a picker and Envoy, ready."""
    async with running_fleet(replicas=1) as fleet:
        (replica,) = fleet.replicas
        endpoints = folder / "endpoints.json"
        listed = {"name": replica.name, "address": replica.address, "port": str(replica.port)}
        endpoints.write_text(json.dumps({"endpoints": [listed]}))
        flags = ["--host", "127.0.0.1", "--secure-serving=false", "--config-text", CONFIG]
        flags += ["--grpc-port", "0", "--grpc-health-port", "0", "--metrics-port", "0"]
        picker = Picker(parse_args([*flags, "--endpoints-file", str(endpoints), "--pool-name", "pool"]))
        await picker.start()
        try:
            async with running_envoy(folder, picker.server.port, replica.port) as envoy:
                yield Edge(picker, replica, envoy)
        finally:
            await picker.stop()


def test_any_mix_of_transports_books_and_releases_in_one_ledger(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        opened = edge(tmp_path)
        built = runner.run(opened.__aenter__())
        try:
            runner.run(built.mixed([(way, False) for way in WAYS]))
            runner.run(built.mixed([(way, True) for way in WAYS]))

            @settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
            @given(st.lists(st.tuples(st.sampled_from(WAYS), st.booleans()), min_size=1, max_size=12))
            def holds(ways: list[tuple[tuple[str, str], bool]]) -> None:
                runner.run(built.mixed(ways))

            holds()
            assert built.envoy.counter("spurious_msgs_received") == 0
        finally:
            runner.run(opened.__aexit__(None, None, None))
