"""Bodies on their way back to Envoy, as effects: in chunks, or in the place of the messages shown.

Envoy drops content-length by itself in full duplex only, and only unless told to keep it; elsewhere it sends
on a length that has become wrong, or refuses the exchange. So the length follows every body that changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dataplane.extproc.events import (
    AnswerBody,
    AnswerTrailers,
    BodyMode,
    BodyRest,
    BodyTransform,
    Effect,
    EndBody,
    LaterBody,
    MetadataValues,
    Proceed,
    Pushing,
    StreamBody,
)
from dataplane.headers import Headers

MAX_CHUNK_BYTES: Final = 62_000
"""Body bytes in one answer: with its framing it stays below the 64 KiB that every proxy accepts."""

CONTENT_LENGTH: Final = "content-length"
UNCHANGED: Final = Proceed()
ONE_MESSAGE: Final = (BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL)
"""Modes in which Envoy shows a body as one message."""


def stream(response: bool, body: bytes, end: bool) -> list[Effect]:
    """Body bytes as chunks of at most ``MAX_CHUNK_BYTES``; an empty body is one empty chunk."""
    size = len(body)
    if size <= MAX_CHUNK_BYTES:
        return [StreamBody(response, body, end)]
    last = (size - 1) // MAX_CHUNK_BYTES * MAX_CHUNK_BYTES
    return [
        StreamBody(response, body[at : at + MAX_CHUNK_BYTES], end and at == last)
        for at in range(0, size, MAX_CHUNK_BYTES)
    ]


def forwarded(body: bytes, end: bool, messages: int) -> list[Effect]:
    """A request's body in full duplex; its end is marked iff a chunk, not trailers, brought it."""
    return stream(False, body, end) if messages and (body or end) else []


def replace(response: bool, body: bytes, messages: int) -> list[Effect]:
    """One answer to each of so many messages: the first carries the whole body, the others nothing."""
    return [AnswerBody(response, UNCHANGED, body), *[AnswerBody(response, UNCHANGED, b"")] * (messages - 1)]


def with_metadata(effects: list[Effect], metadata: MetadataValues | None) -> list[Effect]:
    """The effects, the last of which also sets this dynamic metadata."""
    last = effects[-1] if metadata and effects else None
    if isinstance(last, StreamBody | AnswerTrailers):
        last.metadata = metadata
    elif isinstance(last, AnswerBody):
        proceed = last.proceed
        last.proceed = Proceed(proceed.set_headers, proceed.remove_headers, metadata)
    return effects


def announced_size(headers: Headers) -> int | None:
    """The content-length; None when there is none, or none that makes sense."""
    length = headers.get(CONTENT_LENGTH)
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None


def with_length(proceed: Proceed, headers: Headers, size: int) -> Proceed:
    """``proceed`` for a body of this size, where ``headers`` announce one of another."""
    if CONTENT_LENGTH not in headers:
        return proceed
    return Proceed(
        [*proceed.set_headers, _length(size)],
        proceed.remove_headers,
        proceed.metadata,
        proceed.clear_route_cache,
    )


def _length(size: int) -> tuple[str, bytes]:
    return CONTENT_LENGTH, b"%d" % size


class TransformedBody:
    """A response body on its way through an exchange's transform, in one body mode."""

    __slots__ = (
        "_after",
        "_announced",
        "_is_one_message",
        "_is_streamed",
        "_last_size",
        "_metadata",
        "_transform",
        "later",
        "rest",
    )

    def __init__(
        self,
        transform: BodyTransform,
        announced: int | None,
        mode: BodyMode,
        resume: Callable[[BodyRest], None],
    ) -> None:
        """``resume`` takes what the transform sends on by itself."""
        if mode is BodyMode.FULL_DUPLEX_STREAMED and isinstance(transform, Pushing):
            transform.attach(lambda body, end: resume(BodyRest(body, end)))
        self._transform = transform
        self._announced = announced
        self._is_one_message = mode in ONE_MESSAGE
        self._is_streamed = mode is BodyMode.FULL_DUPLEX_STREAMED
        self.rest: bytes | None = None
        """Once the transform has ended the body early, what each further chunk becomes: nothing."""
        self.later: LaterBody | None = None
        """Set when the end of the body waits; ``wait`` is to be called then."""
        self._last_size = 0
        self._metadata: MetadataValues | None = None
        self._after: Effect | None = None

    def answer(self, proceed: Proceed, headers: Headers) -> Proceed:
        """The answer to the headers: the length of a body that is passed on in parts is not known yet."""
        if self._is_one_message or CONTENT_LENGTH not in headers:
            return proceed
        return Proceed(
            proceed.set_headers,
            [*proceed.remove_headers, CONTENT_LENGTH],
            proceed.metadata,
            proceed.clear_route_cache,
        )

    def pass_on(self, chunk: bytes, end: bool) -> list[Effect]:
        """The answer to one message of the body."""
        try:
            body = self._transform.feed(chunk, end)
        except EndBody as cut:
            body, end, self.rest = cut.last, True, b""
        except LaterBody as later:
            self.later, self._last_size = later, len(chunk)
            return []
        if body is chunk and not self._is_streamed:
            return [AnswerBody(True, UNCHANGED)]
        return self._sent(body, end, len(chunk))

    def _sent(self, body: bytes, end: bool, came: int) -> list[Effect]:
        if self._is_streamed:
            return stream(True, body, end) if body or end else []
        if not self._is_one_message or self._announced is None:
            return [AnswerBody(True, UNCHANGED, body)]
        # Of a body that does not fit, the rest passes unseen: only the difference is known.
        size = self._announced + len(body) - came
        return [AnswerBody(True, Proceed([_length(size)]), body)]

    def before_trailers(self) -> list[Effect]:
        """What has been held back, now that trailers end the body; only full duplex has a place for it."""
        try:
            rest = self._transform.feed(b"", True)
        except EndBody as cut:
            rest = cut.last
        except LaterBody as later:
            self.later = later
            return []
        return stream(True, rest, False) if rest and self._is_streamed else []

    def wait(
        self, take: Callable[[bytes], None], metadata: MetadataValues | None, after: Effect | None
    ) -> None:
        """Let ``take`` have the last bytes when they are there; what ``finish`` answers then, with these."""
        later, self.rest, self._metadata, self._after = self.later, b"", metadata, after
        if later is not None:
            later.start(take)

    def finish(self, rest: BodyRest) -> list[Effect]:
        """The answers that have waited for the last bytes; some bytes are one by themselves."""
        body = rest.body
        if not rest.end:
            return stream(True, body, False) if body else []
        self.rest = b""
        if self._after is None:
            return with_metadata(self._sent(body, True, self._last_size), self._metadata)
        return [*(stream(True, body, False) if body and self._is_streamed else []), self._after]
