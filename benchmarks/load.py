"""The load generator of the ext_proc benchmark: keep-alive connections, in a closed loop or at a given rate.

In the closed loop each connection sends its next request when the answer to the last one is complete, so the
load follows what the system can carry and nothing queues up outside it. At a rate, requests fall due at
random moments (exponential gaps, seeded) and take an idle connection; latency then counts from the moment a
request was due, so that waiting for a connection is not forgotten. Every answer's status and length are
checked. Load runs from the start; the benchmark says when to begin counting (`mark`) and when to stop
(`stop`), so that CPU times and counts cover the same window.

Run as `python -m benchmarks.load`; `mark` is answered with an empty line, `stop` with a JSON `LoadReport`.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from array import array
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from typing import cast

import msgspec

from benchmarks.bodies import chat_bodies
from benchmarks.http1 import Message, MessageReader, ProtocolError
from benchmarks.stats import Summary, histogram, summarize
from benchmarks.worker import commands, run_on_uvloop

RECONNECT_DELAY_S = 0.05

DUE_LIMIT = 1000
"""Requests that may wait for a connection; more means that the rate is beyond what the system carries."""

STATUS = slice(9, 12)
"""Where a status line has its code."""


class LoadReport(msgspec.Struct, frozen=True):
    """What the clients saw between `mark` and `stop`."""

    seconds: float
    requests: int
    """Answers that were complete and right."""
    payload_bytes: int
    """Bytes of response bodies, those of unfinished answers included."""
    errors: dict[str, int]
    """Wrong or missing answers by what was wrong."""
    latency_us: Summary
    latency_histogram_us: list[tuple[float, int]]


class Load:
    """What all connections share: the requests, and what is counted."""

    def __init__(self, requests: Sequence[bytes], expected_bytes: int, *, paced: bool = False) -> None:
        self.requests = requests
        self.expected_bytes = expected_bytes
        self.paced = paced
        self.idle: deque[Client] = deque()
        """Connections without a request, when the load is paced."""
        self.due: deque[float] = deque()
        """When the requests fell due that no connection was idle for."""
        self.readers: list[MessageReader] = []
        self.next_request = 0
        self.begin_window()

    def becomes_idle(self, client: "Client") -> None:
        """Give a connection its next request, or keep it until one is due."""
        if not self.paced:
            client.send(time.perf_counter())
        elif self.due:
            client.send(self.due.popleft())
        else:
            self.idle.append(client)

    def falls_due(self) -> None:
        """Send a request on an idle connection; without one it waits, up to a limit."""
        if self.idle:
            self.idle.popleft().send(time.perf_counter())
        elif len(self.due) < DUE_LIMIT:
            self.due.append(time.perf_counter())
        else:
            self.errors["not sent: all connections busy"] += 1

    def begin_window(self) -> None:
        """Forget what was counted so far."""
        self.started = time.perf_counter()
        self.latencies_us = array("d")
        self.errors: Counter[str] = Counter()
        self.payload_before = self.payload_bytes()

    def payload_bytes(self) -> int:
        """Response bytes since the start, over all connections there ever were."""
        return sum(reader.payload_bytes for reader in self.readers)

    def take_request(self) -> bytes:
        """The next request in rotation."""
        request = self.requests[self.next_request]
        self.next_request = (self.next_request + 1) % len(self.requests)
        return request

    def complaint(self, message: Message) -> str | None:
        """What is wrong with an answer."""
        status = message.head[STATUS]
        if status != b"200":
            return f"status {status.decode(errors='replace')}"
        if message.body_bytes != self.expected_bytes:
            return f"body of {message.body_bytes} bytes instead of {self.expected_bytes}"
        return None

    def report(self) -> LoadReport:
        """Sum up the window."""
        return LoadReport(
            seconds=time.perf_counter() - self.started,
            requests=len(self.latencies_us),
            payload_bytes=self.payload_bytes() - self.payload_before,
            errors=dict(self.errors),
            latency_us=summarize(self.latencies_us),
            latency_histogram_us=histogram(self.latencies_us),
        )


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: Load, lost: asyncio.Future[None]) -> None:
        self.load = load
        self.lost = lost
        self.reader = MessageReader()
        self.transport: asyncio.Transport
        self.since = 0.0
        """When the request in flight was sent, or fell due."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first request."""
        self.transport = cast("asyncio.Transport", transport)
        self.load.readers.append(self.reader)
        self.load.becomes_idle(self)

    def send(self, since: float) -> None:
        """Send the next request, whose latency counts from `since`."""
        self.since = since
        self.transport.write(self.load.take_request())

    def data_received(self, data: bytes) -> None:
        """Check a complete answer and ask for the next request."""
        try:
            messages = self.reader.feed(data)
        except ProtocolError as error:
            self.load.errors[str(error)] += 1
            self.transport.abort()
            return
        for message in messages:
            complaint = self.load.complaint(message)
            if complaint is None:
                self.load.latencies_us.append((time.perf_counter() - self.since) * 1e6)
            else:
                self.load.errors[complaint] += 1
            self.load.becomes_idle(self)

    def connection_lost(self, _: Exception | None) -> None:
        """Let the connection's task open a new one."""
        if self in self.load.idle:
            self.load.idle.remove(self)
        if not self.lost.done():
            self.lost.set_result(None)


async def keep_connected(load: Load, host: str, port: int) -> None:
    """Hold one connection open until cancelled; a lost one counts as an error."""
    loop = asyncio.get_running_loop()
    while True:
        lost = loop.create_future()
        try:
            transport, _ = await loop.create_connection(partial(Client, load, lost), host, port)
        except OSError as error:
            load.errors[f"connect: {os.strerror(error.errno) if error.errno else error}"] += 1
        else:
            try:
                await lost
            finally:
                transport.abort()
            load.errors["connection closed"] += 1
        await asyncio.sleep(RECONNECT_DELAY_S)


async def keep_pace(load: Load, rate: float, seed: int) -> None:
    """Let requests fall due, `rate` per second on average, until cancelled."""
    random_source = random.Random(seed)  # noqa: S311 - reproducible arrivals, not a secret
    due = time.perf_counter()
    while True:
        due += random_source.expovariate(rate)
        delay = due - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        load.falls_due()


def http_request(body: bytes, *, stream: bool) -> bytes:
    """A POST as an OpenAI client sends it through a gateway."""
    accept = b"text/event-stream" if stream else b"application/json"
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench.local\r\nuser-agent: pointsman-bench\r\n"
        b"accept: %b\r\naccept-encoding: identity\r\nauthorization: Bearer sk-bench-0123456789abcdef\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (accept, len(body), body)
    )


async def generate(arguments: argparse.Namespace) -> None:
    """Run the load and obey the benchmark."""
    bodies = chat_bodies(
        count=arguments.bodies, size_bytes=arguments.body_bytes, seed=arguments.seed, stream=arguments.stream
    )
    requests = [http_request(body, stream=arguments.stream) for body in bodies]
    load = Load(requests, arguments.expect_bytes, paced=arguments.rate > 0)
    host, _, port = arguments.target.rpartition(":")
    tasks = [asyncio.create_task(keep_connected(load, host, int(port))) for _ in range(arguments.connections)]
    if arguments.rate > 0:
        tasks.append(asyncio.create_task(keep_pace(load, arguments.rate, arguments.seed)))
    reader = await commands()
    while line := await reader.readline():
        if line == b"mark\n":
            load.begin_window()
            print(flush=True)
        elif line == b"stop\n":
            print(msgspec.json.encode(load.report()).decode(), flush=True)
            break
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and generate load."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--target", required=True, help="HOST:PORT")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--body-bytes", type=int, default=2048)
    parser.add_argument("--bodies", type=int, default=256, help="how many distinct bodies to rotate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second; 0 is the closed loop")
    parser.add_argument("--stream", action="store_true", help="ask for an SSE stream")
    parser.add_argument("--expect-bytes", type=int, required=True, help="length of a right answer's body")
    run_on_uvloop(generate(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
