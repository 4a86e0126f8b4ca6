"""Model servers that answer, hang, reset or talk nonsense, on loopback."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Self

from dataplane.plugin.base import TypedName
from epp.datalayer.scraper import Scraper
from epp.interfaces.endpoint import Endpoint, EndpointSpec, EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.extractors.core_metrics import CoreMetricsExtractor, CoreMetricsExtractorParams
from epp.plugins.sources.model_server_metrics import ModelServerMetricsParams, ModelServerMetricsSource

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Called for each request; may write anything or close the writer."""


def page(waiting: float = 4, running: float = 3, kv_usage: float = 0.5) -> bytes:
    """A small vLLM page."""
    return (
        "# TYPE vllm:num_requests_running gauge\n"
        f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}\n'
        "# TYPE vllm:num_requests_waiting gauge\n"
        f'vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}\n'
        "# TYPE vllm:kv_cache_usage_perc gauge\n"
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {kv_usage}\n'
        "# TYPE vllm:cache_config_info gauge\n"
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0\n'
    ).encode()


def answer(body: bytes, head: bytes = b"") -> Answer:
    """Answer every request with this body."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    return write


class ModelServer:
    """One server; `answer` may be replaced while it runs."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen; again on the same port after `stop`."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Reset every connection and listen no longer."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while not writer.is_closing():
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                await self.answer(writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


class CountedErrors:
    """Counts what the scraper counts."""

    def __init__(self) -> None:
        self.poll = 0
        self.extract = 0

    def poll_error(self, source_type: str) -> None:
        assert source_type == "metrics-data-source"
        self.poll += 1

    def extract_error(self, source_type: str, extractor_type: str) -> None:
        assert (source_type, extractor_type) == ("metrics-data-source", "core-metrics-extractor")
        self.extract += 1


class Fleet:
    """A table, a scraper and the servers it scrapes."""

    def __init__(self, *, interval_s: float = 0.01, staleness_s: float = 60.0, **source: object) -> None:
        self.table = EndpointTable()
        self.errors = CountedErrors()
        handle = Handle(self.table)
        self.source = ModelServerMetricsSource(
            TypedName("metrics-data-source", "metrics"), ModelServerMetricsParams(**source), handle
        )
        extractor = TypedName("core-metrics-extractor", "core")
        self.source.bind([CoreMetricsExtractor(extractor, CoreMetricsExtractorParams(), handle)])
        self.scraper = Scraper(
            self.table, [self.source], self.errors, base_interval_s=interval_s, staleness_s=staleness_s
        )
        self.servers: list[ModelServer] = []

    async def __aenter__(self) -> Self:
        self.scraper.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.scraper.stop()
        for server in self.servers:
            await server.stop()

    async def serve(self, answer: Answer, tls: ssl.SSLContext | None = None) -> ModelServer:
        """Start a server."""
        server = ModelServer(answer)
        await server.start(tls)
        self.servers.append(server)
        return server

    def add(self, server: ModelServer, name: str = "a", **spec: object) -> Endpoint:
        """Make the server an endpoint of the pool."""
        spec = {"address": "127.0.0.1", "port": server.port, **spec}
        endpoint = self.table.add(EndpointSpec(name=name, namespace="default", **spec))
        self.scraper.on_endpoint_added(endpoint)
        return endpoint

    def scrapes(self, endpoint: Endpoint) -> int:
        """Number of the scrape the endpoint's columns come from."""
        return int(self.table.applied[endpoint.slot])
