"""Read token usage from the answers of vLLM's gRPC API while they pass.

``Generate`` answers with chunks, each with the number of its own tokens, and then once per sample with
everything; ``Embed`` answers once. Both report the prompt with every message. Which method was called is not
said here, so a message is told by its shape: only an embedding has a number in field 2.
"""

from __future__ import annotations

from typing import Final

from dataplane.payload.token_usage import Usage
from epp.plugins.grpc_frames import FrameReader
from epp.plugins.protobuf_wire import BYTES, VARINT, WireError, fields

MAX_TOKENS: Final = (1 << 32) - 1
"""Counts beyond are no counts."""

_CHUNK: Final = 1
_COMPLETE: Final = 2
_EMBEDDED_PROMPT: Final = 2

_CHUNK_COUNTS: Final = (2, 3, 4)
_COMPLETE_COUNTS: Final = (3, 4, 5)
"""Fields of prompt, completion and cached tokens."""


class VllmGrpcUsageReader:
    """Reads one response body, chunk by chunk."""

    __slots__ = ("_cached", "_completion", "_frames", "_generated", "_prompt", "_streaming", "events")

    def __init__(self, streaming: bool) -> None:
        self.events = 0
        """Messages of a streamed answer."""
        self._streaming = streaming
        self._frames = FrameReader()
        self._prompt: int | None = None
        self._cached: int | None = None
        self._generated: int | None = None
        """Tokens of all chunks."""
        self._completion: int | None = None
        """Tokens of all complete answers."""

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the body."""
        for message in self._frames.feed(chunk):
            try:
                self._read(message)
            except WireError:
                continue  # the message of some other method
        if self._streaming:
            self.events = self._frames.frames

    def finish(self) -> Usage | None:
        """Usage found, None if there was none. The body has ended or broken off."""
        if self._prompt is None:
            return None
        completion = self._completion if self._completion is not None else self._generated
        return Usage(prompt_tokens=self._prompt, completion_tokens=completion, cached_tokens=self._cached)

    def _read(self, message: bytes) -> None:
        inner: dict[int, tuple[int, int]] = {}
        embedded = 0
        for number, wire_type, start, end in fields(message, 0, len(message)):
            if wire_type == BYTES:
                inner[number] = (start, end)
            elif wire_type == VARINT and number == _EMBEDDED_PROMPT:
                embedded = start
        if embedded:
            if embedded <= MAX_TOKENS:
                self._prompt = embedded
        elif list(inner) == [_CHUNK]:
            counts = _counts(message, inner[_CHUNK], _CHUNK_COUNTS)
            if self._note(counts):
                self._generated = (self._generated or 0) + counts[1]
        elif list(inner) == [_COMPLETE]:
            counts = _counts(message, inner[_COMPLETE], _COMPLETE_COUNTS)
            if self._note(counts):
                self._completion = (self._completion or 0) + counts[1]

    def _note(self, counts: list[int]) -> bool:
        """Keep what is told of the prompt; false when the message tells nothing of it."""
        prompt, _, cached = counts
        if not prompt or max(counts) > MAX_TOKENS:
            return False
        self._prompt, self._cached = prompt, cached
        return True


def _counts(message: bytes, span: tuple[int, int], wanted: tuple[int, int, int]) -> list[int]:
    """Values of three fields; absent ones are zero, as the format has it."""
    found = {number: value for number, kind, value, _ in fields(message, *span) if kind == VARINT}
    return [found.get(number, 0) for number in wanted]
