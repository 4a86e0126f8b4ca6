"""The model servers of the ext_proc benchmark: one process, many ports, as cheap as Python can be.

Every port is an endpoint of its own with its own count of running requests, so that a picker scraping
`/metrics` sees real differences. A chat completion gets a fixed JSON answer; one that asks for
`text/event-stream` gets a stream of equal chunks, each in a write of its own, paced or not. No work stands
for inference: what is measured is everything around it.

Run as `python -m benchmarks.upstream`; the first line on stdout is a JSON `Ready`; every line on stdin is
answered with the number of `/metrics` requests served so far; it ends when its stdin does.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import cast

import msgspec

from benchmarks.http1 import Message, MessageReader, ProtocolError
from benchmarks.vllm_metrics import MetricsPage
from benchmarks.worker import commands, run_on_uvloop

ANSWER = (
    b'{"id":"chatcmpl-0","object":"chat.completion","model":"bench","choices":[],'
    b'"usage":{"prompt_tokens":512,"completion_tokens":16,"total_tokens":528}}'
)

SSE_CHUNK = (
    b'data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1,"model":"bench",'
    b'"choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}\n\n'
)
SSE_END = (
    b'data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1,"model":"bench","choices":[],'
    b'"usage":{"prompt_tokens":512,"completion_tokens":16,"total_tokens":528}}\n\n'
    b"data: [DONE]\n\n"
)

METRICS_SCALE_RUNNING = 64
"""Running requests at which the made-up KV-cache usage reaches 1."""


class Ready(msgspec.Struct, frozen=True):
    """Where the endpoints listen and what a caller must receive."""

    ports: list[int]
    answer_bytes: int
    stream_bytes: int
    stream_chunk_bytes: int
    metrics_bytes: int


class Endpoint:
    """What the connections of one port share."""

    def __init__(self, *, sse_chunks: int, sse_interval_s: float) -> None:
        self.page = MetricsPage("bench")
        self.running = 0
        self.scrapes = 0
        self.sse_chunks = sse_chunks
        self.sse_interval_s = sse_interval_s

    def metrics(self) -> bytes:
        """The body of `/metrics` for the load of this moment."""
        self.scrapes += 1
        return self.page.render(self.running, 0, min(1.0, self.running / METRICS_SCALE_RUNNING))


class Connection(asyncio.Protocol):
    """One keep-alive connection; Envoy has at most one request in flight on it."""

    def __init__(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop) -> None:
        self.endpoint = endpoint
        self.loop = loop
        self.reader = MessageReader()
        self.chunks_left = 0
        self.transport: asyncio.Transport
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        """Stop a stream nobody reads any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.endpoint.running -= 1
            self.timer = None

    def data_received(self, data: bytes) -> None:
        """Answer the requests that are complete."""
        try:
            messages = self.reader.feed(data)
        except ProtocolError:
            self.transport.abort()
            return
        for message in messages:
            self.answer(message)

    def answer(self, message: Message) -> None:
        """Answer one request, or begin to."""
        head = message.head
        if head.startswith(b"POST "):
            if b"text/event-stream" in head:
                self.begin_stream()
            else:
                self.transport.write(response(b"application/json", ANSWER))
        elif head.startswith(b"GET /metrics"):
            self.transport.write(response(b"text/plain; version=0.0.4", self.endpoint.metrics()))
        elif head.startswith((b"GET /health", b"GET /v1/models")):
            self.transport.write(response(b"application/json", b'{"object":"list","data":[{"id":"bench"}]}'))
        else:
            self.transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    def begin_stream(self) -> None:
        """Send the head, then chunk after chunk."""
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self.endpoint.running += 1
        self.chunks_left = self.endpoint.sse_chunks
        self.timer = self.loop.call_later(self.endpoint.sse_interval_s, self.next_chunk)

    def next_chunk(self) -> None:
        """Send one chunk and arrange for the next, or end the stream."""
        if self.chunks_left == 0:
            self.timer = None
            self.endpoint.running -= 1
            self.transport.write(chunk(SSE_END) + b"0\r\n\r\n")
            return
        self.chunks_left -= 1
        self.transport.write(FRAMED_SSE_CHUNK)
        self.timer = self.loop.call_later(self.endpoint.sse_interval_s, self.next_chunk)


def response(content_type: bytes, body: bytes) -> bytes:
    """A complete 200 response with its length."""
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: " + content_type + b"\r\ncontent-length: %d\r\n\r\n" % len(body)
    ) + body


def chunk(payload: bytes) -> bytes:
    """`payload` as one chunk of the chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


FRAMED_SSE_CHUNK = chunk(SSE_CHUNK)


async def serve(arguments: argparse.Namespace) -> None:
    """Listen on as many free ports as asked for, say where, and serve until stdin ends."""
    loop = asyncio.get_running_loop()
    interval_s = arguments.sse_interval_ms / 1000
    endpoints = [
        Endpoint(sse_chunks=arguments.sse_chunks, sse_interval_s=interval_s)
        for _ in range(arguments.endpoints)
    ]
    ports = []
    for endpoint in endpoints:
        server = await loop.create_server(partial(Connection, endpoint, loop), "127.0.0.1", 0, backlog=1024)
        ports.append(server.sockets[0].getsockname()[1])
    ready = Ready(
        ports=ports,
        answer_bytes=len(ANSWER),
        stream_bytes=len(SSE_CHUNK) * arguments.sse_chunks + len(SSE_END),
        stream_chunk_bytes=len(SSE_CHUNK),
        metrics_bytes=len(endpoints[0].page.render(0, 0, 0.0)),
    )
    print(msgspec.json.encode(ready).decode(), flush=True)
    reader = await commands()
    while await reader.readline():
        print(sum(endpoint.scrapes for endpoint in endpoints), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.upstream", description=__doc__)
    parser.add_argument("--endpoints", type=int, default=8)
    parser.add_argument("--sse-chunks", type=int, default=100)
    parser.add_argument("--sse-interval-ms", type=float, default=5.0)
    run_on_uvloop(serve(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
