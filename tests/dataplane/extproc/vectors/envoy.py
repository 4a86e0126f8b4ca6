"""A real Envoy with one listener per body mode, an upstream that echoes, and raw HTTP/1.1 requests.

Everything listens on 127.0.0.1 on ports that the system chooses, and stops with its context manager.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE_S

ENVOY = Path(sys.executable).with_name("envoy")
TYPE = "type.googleapis.com/envoy.extensions."
READY_WITHIN_S = PATIENCE_S


@dataclass(frozen=True)
class Listener:
    """How one listener's ext_proc filter treats bodies."""

    request: str
    response: str
    nowait: bool = False
    metadata: bool = False


FULL = "FULL_DUPLEX_STREAMED"
LISTENERS = {
    "full duplex": Listener(FULL, FULL),
    "full duplex with metadata": Listener(FULL, FULL, metadata=True),
    "full duplex requests only": Listener(FULL, "NONE"),
    "buffered": Listener("BUFFERED", "BUFFERED"),
    "buffered partial": Listener("BUFFERED_PARTIAL", "BUFFERED_PARTIAL"),
    "streamed": Listener("STREAMED", "STREAMED"),
    "streamed without waiting": Listener("STREAMED", "STREAMED", nowait=True),
    "none": Listener("NONE", "NONE"),
}


def post(path: str, body: bytes) -> bytes:
    """A request with a content-length."""
    head = f"POST {path} HTTP/1.1\r\nHost: gateway.example\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def post_chunked(path: str, *chunks: bytes, trailers: bool = False) -> bytes:
    """A request in HTTP/1.1 chunks, with trailers when asked for."""
    head = f"POST {path} HTTP/1.1\r\nHost: gateway.example\r\nTransfer-Encoding: chunked\r\n"
    head += "Connection: close\r\n" + ("Trailer: x-sum\r\n" if trailers else "") + "\r\n"
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head.encode() + body + b"0\r\n" + (b"x-sum: 1\r\n" if trailers else b"") + b"\r\n"


REQUESTS = {
    "no body": b"GET /v1/models HTTP/1.1\r\nHost: gateway.example\r\nConnection: close\r\n\r\n",
    "body": post("/v1/completions", b'{"model":"a"}'),
    "trailers both ways": post_chunked("/trailers", b"hello", trailers=True),
    "trailers without a body": post_chunked("/trailers", trailers=True),
    "response without a body": b"GET /none HTTP/1.1\r\nHost: gateway.example\r\nConnection: close\r\n\r\n",
}


def _http_filters(listener: Listener, name: str) -> list[dict[str, Any]]:
    ext_proc: dict[str, Any] = {
        "@type": TYPE + "filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "processor"}},
        "message_timeout": "10s",
        "metadata_options": {"receiving_namespaces": {"untyped": ["billing"]}},
        "stat_prefix": name.replace(" ", "_"),
        "processing_mode": {
            "request_header_mode": "SEND",
            "response_header_mode": "SEND",
            "request_body_mode": listener.request,
            "response_body_mode": listener.response,
            "request_trailer_mode": "SEND",
            "response_trailer_mode": "SEND",
        },
    }
    if listener.nowait:
        ext_proc["send_body_without_waiting_for_header_response"] = True
    filters = [
        {"name": "envoy.filters.http.ext_proc", "typed_config": ext_proc},
        {"name": "router", "typed_config": {"@type": TYPE + "filters.http.router.v3.Router"}},
    ]
    if listener.metadata:
        ext_proc["request_attributes"] = ["request.path"]
        ext_proc["metadata_options"]["forwarding_namespaces"] = {"untyped": ["envoy.lb"]}
        metadata = {"metadata_namespace": "envoy.lb", "value": {"subset": ["10.0.0.1", {"weight": 0.5}]}}
        config = {"@type": TYPE + "filters.http.set_metadata.v3.Config", "metadata": [metadata]}
        filters.insert(0, {"name": "set_metadata", "typed_config": config})
    return filters


def _access_log(path: Path) -> dict[str, Any]:
    """One line per request: what the dynamic metadata says it has cost."""
    line = {"text_format_source": {"inline_string": "%DYNAMIC_METADATA(billing:cost)%\n"}}
    config = {"@type": TYPE + "access_loggers.file.v3.FileAccessLog", "path": str(path), "log_format": line}
    return {"name": "access_log", "typed_config": config}


def _listener(name: str, listener: Listener, access_log: Path) -> dict[str, Any]:
    chosen = {"name": "x-route", "string_match": {"exact": "other"}}
    routes = [
        {"match": {"prefix": "/", "headers": [chosen]}, "direct_response": {"status": 418}},
        {"match": {"prefix": "/"}, "route": {"cluster": "upstream", "timeout": "0s"}},
    ]
    manager = {
        "@type": TYPE + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "edge",
        "http_protocol_options": {"enable_trailers": True},
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": _http_filters(listener, name),
        "access_log": [_access_log(access_log)],
    }
    return {
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def _cluster(name: str, port: int, protocol: dict[str, Any]) -> dict[str, Any]:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    options = {"@type": TYPE + "upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": protocol}
    return {
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options
        },
    }


class Envoy:
    """A running Envoy: where its listeners are, and its counters. Its methods block."""

    def __init__(self, folder: Path, processor_port: int, upstream_port: int) -> None:
        self.access_log = folder / "access.log"
        config = {
            "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
            "static_resources": {
                "listeners": [_listener(name, each, self.access_log) for name, each in LISTENERS.items()],
                "clusters": [
                    _cluster("processor", processor_port, {"http2_protocol_options": {}}),
                    _cluster("upstream", upstream_port, {"http_protocol_options": {"enable_trailers": True}}),
                ],
            },
        }
        path, self.admin_file, self.log = folder / "envoy.json", folder / "admin", folder / "envoy.log"
        path.write_text(json.dumps(config))
        command = [str(ENVOY), "-c", str(path), "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
        command += ["--file-flush-interval-msec", "20"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--admin-address-path", str(self.admin_file)], stderr=log
            )
        self.ports: dict[str, int] = {}

    def become_ready(self) -> None:
        """Wait until it serves, and learn where its listeners are."""
        give_up = time.monotonic() + READY_WITHIN_S
        while not self._is_live():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.05)
        for status in json.loads(self.get("/listeners?format=json"))["listener_statuses"]:
            self.ports[status["name"]] = status["local_address"]["socket_address"]["port_value"]

    def _is_live(self) -> bool:
        try:
            return self.get("/ready").strip() == b"LIVE"
        except OSError:
            return False

    def get(self, path: str) -> bytes:
        """Ask the admin interface."""
        with urllib.request.urlopen(
            f"http://{self.admin_file.read_text().strip()}{path}", timeout=5
        ) as answer:
            body: bytes = answer.read()
        return body

    def counter(self, suffix: str) -> int:
        """Sum of the counters whose name ends like this."""
        lines = self.get(f"/stats?filter={suffix}$").decode().split("\n")
        return sum(int(line.rpartition(":")[2]) for line in lines if line.strip())

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(PATIENCE_S)


@asynccontextmanager
async def running_envoy(folder: Path, processor_port: int, upstream_port: int) -> AsyncIterator[Envoy]:
    """Envoy with all ``LISTENERS``, until the context ends."""
    envoy = Envoy(folder, processor_port, upstream_port)
    try:
        await asyncio.to_thread(envoy.become_ready)
        yield envoy
    finally:
        await asyncio.to_thread(envoy.stop)


@dataclass
class Message:
    """A request or response as it came over the wire, its body out of its chunks."""

    start: str
    headers: dict[str, str]
    body: bytes
    trailers: dict[str, str]

    @property
    def status(self) -> int:
        return int(self.start.split(" ")[1])


def _fields(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines if line)
    return {name.lower(): value.strip() for name, _, value in pairs}


async def read_message(reader: asyncio.StreamReader) -> Message:
    """The next message; a response without a length ends with its connection."""
    start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers, body, trailers = _fields(lines), b"", {}
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        rest = []
        while (line := await reader.readline()) != b"\r\n":
            rest.append(line.decode().strip())
        trailers = _fields(rest)
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    return Message(start, headers, body, trailers)


async def exchange(port: int, request: bytes) -> Message:
    """Send a request and read the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        writer.write(request)
        async with asyncio.timeout(PATIENCE_S):
            return await read_message(reader)
    finally:
        writer.close()


class Upstream:
    """Answers what was sent to it, and keeps what it has seen."""

    def __init__(self) -> None:
        self.seen: list[Message] = []
        self.may_break = asyncio.Event()
        self.left = 0
        """Event streams that were given up."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                message = await read_message(reader)
                self.seen.append(message)
                path = message.start.split(" ")[1]
                if path == "/events":
                    await self._answer_with_events(writer)
                elif path == "/none":
                    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                elif path == "/trailers":
                    await self._answer_with_trailers(writer)
                elif path in {"/broken", "/endless"}:
                    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
                    if path == "/broken":
                        await self.may_break.wait()
                        break
                else:
                    body = message.body or b'{"data":[]}'
                    head = (
                        f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
                    )
                    writer.write(head.encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer_with_events(self, writer: asyncio.StreamWriter) -> None:
        """Events without end, until nobody listens any more."""
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for number in range(2000):
            event = b'data: {"n":%d}\n\n' % number
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
            await asyncio.sleep(0.01)
            if writer.transport.is_closing():
                self.left += 1
                return

    async def _answer_with_trailers(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-end\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(b"2\r\nde\r\n0\r\nx-end: 1\r\n\r\n")


@asynccontextmanager
async def running_upstream() -> AsyncIterator[tuple[Upstream, int]]:
    """An upstream and its port, until the context ends."""
    upstream = Upstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=1 << 20)
    try:
        yield upstream, server.sockets[0].getsockname()[1]
    finally:
        server.close()
