"""A whole gateway with a payload processor, before model servers that answer whatever a test has them say.

Everything is real but the model servers, one for each pool: Envoy, the processor and pickers. They keep what
they see of each request, by the key that the test sent in ``KEY``, and answer with what is kept under it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from cli.local.gateway import Gateway
from cli.local.plan import PoolPlan
from dataplane.processes.folder import write_atomically
from tests.dataplane.extproc.vectors.envoy import Message, read_message
from tests.support.gateway import started_gateway

KEY = "x-test-key"
EVENTS = "text/event-stream"
JSON = "application/json"
LIMIT_BYTES = 1 << 20
WAIT_S = 60.0
ATTEMPTS = 10
AWAY = b"upstream_unavailable"

Write = Callable[[asyncio.StreamWriter], Awaitable[None]]


class ModelServers:
    """What stands behind the pickers."""

    def __init__(self) -> None:
        self.seen: dict[str, list[Message]] = {}
        """Requests that have come whole, by key."""
        self.pools: dict[str, str] = {}
        """The pool whose server has seen the last of them, by key."""
        self.answers: dict[str, Write] = {}
        self.left: dict[str, asyncio.Event] = {}
        """Set when the gateway gives an answer up."""

    async def serve(self, pool: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer on a connection to a pool's server."""
        key = ""
        try:
            while True:
                message = await read_message(reader)
                if message.start.startswith("GET /metrics"):
                    page = b"vllm:num_requests_waiting 0\nvllm:num_requests_running 0\n"
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(page), page))
                    continue
                key = message.headers.get(KEY, "")
                self.seen.setdefault(key, []).append(message)
                self.pools[key] = pool
                await self.answers.get(key, said("ok"))(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            if key in self.left:
                self.left[key].set()
        finally:
            writer.close()


def whole(body: bytes, content_type: str = JSON, *headers: str, status: int = 200) -> Write:
    """An answer with a content-length."""
    lines = [f"HTTP/1.1 {status} OK", f"content-type: {content_type}", f"content-length: {len(body)}"]

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join([*lines, *headers, "", ""]).encode() + body)

    return write


def chunked(
    chunks: Sequence[bytes] | Iterator[bytes], content_type: str = EVENTS, *, end: bytes = b"0\r\n\r\n"
) -> Write:
    """An answer in pieces, each on its way before the next; an empty ``end`` breaks it off."""

    async def write(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for chunk in chunks:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(end)
        if not end:
            raise ConnectionResetError

    return write


def said(text: str, **more: Any) -> Write:
    """A chat completion."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return whole(json.dumps({"object": "chat.completion", "choices": [choice], **more}).encode())


def event(text: str, **more: Any) -> bytes:
    """An event of a chat completion that streams."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **more}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


def chat(text: Any, **more: Any) -> bytes:
    """A request's body."""
    return json.dumps({"model": "alpha", "messages": [{"role": "user", "content": text}], **more}).encode()


class Guarded:
    """A running gateway, its client, and its model servers."""

    is_patient = False
    """Whether a request is sent again for which a busy machine has had no processor for a moment."""

    def __init__(self, gateway: Gateway, server: ModelServers, session: aiohttp.ClientSession) -> None:
        self.gateway = gateway
        self.server = server
        self.session = session

    async def ask(
        self,
        body: Any,
        answer: Write | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        path: str = "/v1/chat/completions",
        method: str = "POST",
    ) -> Answered:
        """Send a request that is to be answered like this."""
        for _ in range(ATTEMPTS - 1):
            found = await self._ask(body, answer, headers, path, method)
            if not (self.is_patient and found.status == 503 and AWAY in found.body):
                return found
            await asyncio.sleep(1)
        return await self._ask(body, answer, headers, path, method)

    async def _ask(
        self, body: Any, answer: Write | None, headers: Mapping[str, str] | None, path: str, method: str
    ) -> Answered:
        key = uuid.uuid4().hex
        if isinstance(body, bytes):
            body = io.BytesIO(body)
        if answer is not None:
            self.server.answers[key] = answer
        sent = {"content-type": JSON, KEY: key, **(headers or {})}
        url = self.gateway.plan.url + path
        async with (
            asyncio.timeout(WAIT_S),
            self.session.request(
                method, url, data=body, headers=sent, skip_auto_headers=["accept-encoding"]
            ) as response,
        ):
            broken = False
            pieces: list[bytes] = []
            try:
                while piece := await response.content.readany():
                    pieces.append(piece)
            except aiohttp.ClientPayloadError:
                broken = True
        seen, pool = self.server.seen.pop(key, []), self.server.pools.pop(key, "")
        return Answered(response.status, response.headers, b"".join(pieces), broken, seen, pool)

    async def raw(self, request: bytes) -> Message:
        """Send bytes on a connection of their own, and read one answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gateway.plan.port, limit=LIMIT_BYTES)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(request)
                await writer.drain()
            async with asyncio.timeout(WAIT_S):
                return await read_message(reader)
        finally:
            writer.close()

    async def memory_kb(self) -> int:
        """What the processor has in memory."""
        pid = self.gateway.children["ipp"].pid
        status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
        return int(status.partition("VmRSS:")[2].split()[0])


class Answered:
    """What a client got, and what the model server saw of its request."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        broken: bool,
        seen: list[Message],
        pool: str,
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.is_broken = broken
        """Whether the body did not end as a body does."""
        self.seen = seen
        self.pool = pool
        """The one whose server has answered."""

    @property
    def error(self) -> dict[str, Any]:
        """The error object in OpenAI's form."""
        found: dict[str, Any] = json.loads(self.body)["error"]
        assert found.keys() == {"message", "type", "param", "code"}
        return found

    @property
    def refused(self) -> tuple[int, str]:
        """Status and code of an answer that must not have reached the model server."""
        assert self.seen == []
        assert self.headers["content-type"] == JSON
        return self.status, self.error["code"]


@asynccontextmanager
async def guarded_gateway(config: str, folder: Path) -> AsyncIterator[Guarded]:
    """The gateway of a configuration whose pools are served by ``ModelServers``."""
    server = ModelServers()
    connector = aiohttp.TCPConnector(limit=0)
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(started_gateway(config, folder))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, auto_decompress=False)
        )
        for pool in gateway.plan.pools:
            serve = partial(server.serve, pool.name)
            listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=LIMIT_BYTES)
            stack.callback(listening.close)
            await gateway.children["sim-" + pool.name].stop()
            await _replace_endpoints(gateway, pool, listening.sockets[0].getsockname()[1])
        yield Guarded(gateway, server, session)


async def _replace_endpoints(gateway: Gateway, pool: PoolPlan, port: int) -> None:
    """Have picker and Envoy know the one server."""
    endpoint = {"name": "server", "address": "127.0.0.1", "port": str(port)}
    write_atomically(pool.endpoints_file, json.dumps({"endpoints": [endpoint]}))
    url = f"http://127.0.0.1:{pool.metrics_port}/debug/endpoints"
    async with asyncio.timeout(WAIT_S):
        while True:
            async with gateway.session.get(url) as page:
                known = [each["address"] for each in (await page.json())["endpoints"]]
            hosts = (await gateway.envoy_hosts())["pool-" + pool.name]
            ports = [host["address"]["socket_address"]["port_value"] for host in hosts]
            if known == [f"127.0.0.1:{port}"] and ports == [port]:
                return
            await asyncio.sleep(0.05)
