"""POSTing JSON to one server over HTTP/1.1, with connections that are kept.

Small on purpose: the process that decides loads no HTTP library. It keeps no time; who asks bounds that by
cancelling, which closes the connection.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from asyncio import StreamReader, StreamWriter
from typing import Final
from urllib.parse import urlsplit

from dataplane.addresses import host_port

MAX_CONNECTIONS: Final = 16
"""Questions asked at once; others wait for one of them."""
MAX_HEAD_BYTES: Final = 64 << 10
MAX_ANSWER_BYTES: Final = 32 << 20
MAX_INTERIM: Final = 8
"""Responses of status 1xx before the answer."""

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?\r\n")
_FIELD: Final = re.compile(
    rb"^(content-length|transfer-encoding|connection)[ \t]*:([^\r\n]*)\r$", re.MULTILINE | re.IGNORECASE
)


class HttpError(OSError):
    """The exchange failed; the message says how."""


class HttpPoster:
    """Asks the server of one URL. Owned by the event loop's thread; ``close`` ends it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (80 if self._tls is None else 443)
        self._prefix = parts.path.rstrip("/")
        self._authority = host_port(self._host, self._port)
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[tuple[StreamReader, StreamWriter]] = []
        self._is_closed = False

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. ``OSError`` for every way in which there is none."""
        head = (
            f"POST {self._prefix}{path} HTTP/1.1\r\nhost: {self._authority}\r\naccept: application/json\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()
        async with self._room:
            while self._idle:
                reader, writer = self._idle.pop()
                try:
                    return await self._exchange(reader, writer, head, body)
                except _StaleError:
                    continue  # it was closed while nobody looked: nothing has been asked yet
            if self._is_closed:
                raise HttpError("the client is closed")
            reader, writer = await asyncio.open_connection(
                self._host, self._port, limit=MAX_HEAD_BYTES, ssl=self._tls
            )
            try:
                return await self._exchange(reader, writer, head, body)
            except _StaleError:
                raise HttpError("the connection was closed before an answer") from None

    async def close(self) -> None:
        """Close the connections that nobody uses; those in use close when their answer is there."""
        self._is_closed = True
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()

    async def _exchange(
        self, reader: StreamReader, writer: StreamWriter, head: bytes, body: bytes
    ) -> tuple[int, bytes]:
        keeps = False
        try:
            try:
                writer.write(head)
                writer.write(body)
                await writer.drain()
                first = await reader.readuntil(b"\r\n")
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                raise _StaleError from error
            try:
                status, answer, keeps = await _answer(reader, first)
            except (EOFError, ValueError, asyncio.LimitOverrunError) as error:
                raise HttpError(f"the answer is broken: {error}") from error
        finally:
            if keeps and not self._is_closed:
                self._idle.append((reader, writer))
            else:
                writer.close()
        return status, answer


class _StaleError(Exception):
    """The connection ended before a byte of an answer."""


async def _answer(reader: StreamReader, first: bytes) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection can be used again. ``ValueError`` for what is no HTTP."""
    for _ in range(MAX_INTERIM):
        match = _STATUS.fullmatch(first)
        if match is None:
            raise ValueError(f"it begins with {first[:40]!r}")
        status = int(match[1])
        fields = await _fields(reader)
        if status >= 200:
            break
        first = await reader.readuntil(b"\r\n")
    else:
        raise ValueError("it never comes")
    keeps = first.startswith(b"HTTP/1.1") and b"close" not in fields.get(b"connection", b"")
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        return status, await _chunks(reader), keeps
    length = fields.get(b"content-length")
    if length is not None:
        if not length.isdigit() or len(length) > 12 or int(length) > MAX_ANSWER_BYTES:
            raise ValueError(f"it is {length[:20]!r} bytes long, more than {MAX_ANSWER_BYTES}")
        return status, await reader.readexactly(int(length)), keeps
    found = bytearray()
    while chunk := await reader.read(MAX_HEAD_BYTES):
        found += chunk
        if len(found) > MAX_ANSWER_BYTES:
            raise ValueError(f"it is longer than {MAX_ANSWER_BYTES} bytes")
    return status, bytes(found), False


async def _fields(reader: StreamReader) -> dict[bytes, bytes]:
    """The header fields that say how long the body is, by lower-case name."""
    head = b""
    while not head.endswith(b"\r\n\r\n") and head != b"\r\n":
        head += await reader.readuntil(b"\r\n")
        if len(head) > MAX_HEAD_BYTES:
            raise ValueError(f"its head is longer than {MAX_HEAD_BYTES} bytes")
    return {name.lower(): value.strip().lower() for name, value in _FIELD.findall(head)}


async def _chunks(reader: StreamReader) -> bytes:
    found = bytearray()
    while True:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        if not 0 <= size <= MAX_ANSWER_BYTES - len(found):
            raise ValueError(f"it is longer than {MAX_ANSWER_BYTES} bytes")
        if not size:
            await _fields(reader)
            return bytes(found)
        found += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise ValueError("a chunk is longer than it says")
