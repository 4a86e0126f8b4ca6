"""One keep-alive connection to a model server's metrics port: a request out, a body in.

The connection reads into its own buffer (``asyncio.BufferedProtocol``), so that a scrape allocates little
more than the body it hands on. It keeps no time: deadlines belong to the target that owns it.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from epp.datalayer.http_response import ResponseReader, ScrapeError


class ConnectionOwner(Protocol):
    """Told how the outstanding request ends: exactly one call per ``request``."""

    def received(self, body: bytes) -> None:
        """The complete body."""
        ...

    def failed(self, error: ScrapeError, *, retry: bool) -> None:
        """No body; ``retry`` when a reused connection closed before it answered, which servers may do."""
        ...


class ScrapeConnection(asyncio.BufferedProtocol):
    """Serves one request at a time. ``usable`` says whether another one may be sent."""

    __slots__ = ("_abandoned", "_answered", "_owner", "_response", "_transport", "_waiting", "usable")

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._response = ResponseReader()
        self._transport: asyncio.Transport | None = None
        self._waiting = False
        self._answered = 0
        self._abandoned = False
        self.usable = False

    def request(self, data: bytes) -> None:
        """Send a request. Only when ``usable`` and the previous one has ended."""
        transport = self._transport
        if transport is None or self._waiting:
            raise RuntimeError("a scrape connection serves one request at a time")
        self._response.reset()
        self._waiting = True
        transport.write(data)

    def abandon(self) -> None:
        """Close at once, also before the connection is made; the owner is told nothing more."""
        self._abandoned = True
        self._waiting = False
        self.usable = False
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._abandoned:
            self.abandon()
        else:
            self.usable = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._response.space()

    def buffer_updated(self, nbytes: int) -> None:
        if not self._waiting:
            self.abandon()  # bytes nobody asked for: whatever speaks there, it is not to be trusted
            return
        try:
            body = self._response.filled(nbytes)
        except ScrapeError as error:
            self._fail(error)
            return
        if body is not None:
            self._complete(body)

    def eof_received(self) -> None:
        if self._waiting and not self._response.empty:
            try:
                body = self._response.closed()
            except ScrapeError as error:
                self._fail(error)
            else:
                self._complete(body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.usable = False
        if self._waiting:
            reason = f" ({exc})" if exc is not None else ""
            where = "before" if self._response.empty else "while"
            error = ScrapeError(
                "reset",
                f"the connection was closed {where} answering{reason}",
                "check the scheme of the data source, and look at the model server's log",
            )
            self._fail(error)

    def _complete(self, body: bytes) -> None:
        self._waiting = False
        self._answered += 1
        if not self._response.keep_alive:
            self.abandon()
        self._owner.received(body)

    def _fail(self, error: ScrapeError) -> None:
        retry = self._answered > 0 and self._response.empty
        self.abandon()
        self._owner.failed(error, retry=retry)
