"""Streams of server-sent events, written as tokens come into being.

The hot path of the simulator: one call per token and stream, one write per call. The engine's callback
writes a complete event, already framed for chunked transfer, straight to the transport; only the head of the
response and its end go through aiohttp. A client that reads slowly costs no memory: while its transport is
above `HIGH_WATER_BYTES` nothing is written, and the next event carries all text that came up meanwhile, since
an answer is known by position.
"""

import asyncio
from typing import NamedTuple

from simulator.sequence import Sequence

HIGH_WATER_BYTES = 256 * 1024
DONE = b"data: [DONE]\n\n"


class EventForm(NamedTuple):
    """The constant parts of one choice's events."""

    prelude: bytes
    """A whole event before the first text, or nothing."""
    opening: bytes
    """From `data:` to the text."""
    closing: bytes
    """After the text of an event that is not the last."""
    final: bytes
    """After the last text; `%b` is the finish reason."""


class EventStream:
    """The events of all choices of one response on one connection."""

    def __init__(self, transport: asyncio.Transport, choices: int, *, chunked: bool) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport = transport
        self._chunked = chunked
        self._remaining = choices
        self._open = False
        self._held: list[bytes] = []

    @property
    def writable(self) -> bool:
        """Whether the head of the response is out, the client is there and keeps up."""
        transport = self._transport
        return (
            self._open
            and not transport.is_closing()
            and transport.get_write_buffer_size() <= HIGH_WATER_BYTES
        )

    def open(self) -> None:
        """Allow writing: the head of the response is out."""
        self._open = True

    def write(self, event: bytes) -> None:
        """Write `event` at once; the stream must be writable."""
        self._transport.write(b"%x\r\n%b\r\n" % (len(event), event) if self._chunked else event)

    def finish(self, event: bytes) -> None:
        """Write or keep the last event of one choice; the last choice's is kept for `take_rest`."""
        self._remaining -= 1
        if self._remaining and self.writable:
            self.write(event)
        else:
            self._held.append(event)
        if not self._remaining and not self.done.done():
            self.done.set_result(None)

    def take_rest(self) -> bytes:
        """Return the events that are kept, for the end of the response."""
        return b"".join(self._held)


class StreamedChoice:
    """Listens to one sequence and writes its text as events."""

    __slots__ = ("_cursor", "_form", "_prelude", "_stream")

    def __init__(self, stream: EventStream, form: EventForm) -> None:
        self._stream = stream
        self._form = form
        self._prelude = form.prelude
        self._cursor = 0

    def token(self, sequence: Sequence) -> None:
        """Write what text is new, unless the client is behind."""
        stream = self._stream
        if not stream.writable:
            return
        text, self._cursor = sequence.answer.text(self._cursor, sequence.generated)
        if not text:
            return
        form = self._form
        event = form.opening + text + form.closing
        if self._prelude:
            event = self._prelude + event
            self._prelude = b""
        stream.write(event)

    def finished(self, sequence: Sequence) -> None:
        """Hand over the last event, with the rest of the text and the reason of the end."""
        text, self._cursor = sequence.answer.text(self._cursor, sequence.generated)
        form = self._form
        ending = form.final % sequence.answer.finish_reason.encode()
        self._stream.finish(b"".join((self._prelude, form.opening, text, ending)))
        self._prelude = b""


class Gathered:
    """Listens to the sequences of one request and tells when all are finished."""

    def __init__(self, sequences: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._remaining = sequences

    def token(self, sequence: Sequence) -> None:
        """Ignore a token: the answer is sent whole."""

    def finished(self, sequence: Sequence) -> None:
        """Count one sequence."""
        self._remaining -= 1
        if not self._remaining and not self.done.done():
            self.done.set_result(None)
