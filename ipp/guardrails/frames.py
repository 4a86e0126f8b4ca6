"""Events of an event stream as bytes: where they end, what their data is, and the same with other data.

Lines end in CR, LF or both, and chunks end anywhere, between the two as well.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

DONE: Final = b"[DONE]"
"""Data of the last event, where an API has one."""

_EVENT_END: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"
_IS_PLAIN: Final = re.compile(
    rb"(?:event: ?[A-Za-z][A-Za-z0-9_.]{0,63}+(?:\r\n|\n|\r))?+data:[^\r\n]*+(?:\r\n|\n|\r)*+\Z"
)
"""An event of one line of data, which may say of which kind it is."""


class Frames:
    """Cuts a stream into events."""

    __slots__ = ("_buffer", "_seen")

    def __init__(self) -> None:
        self._buffer = b""
        self._seen = 0
        """Bytes of the buffer in which no event ends."""

    @property
    def held(self) -> int:
        """Bytes of an event that has not come whole."""
        return len(self._buffer)

    def feed(self, chunk: bytes, end: bool) -> list[bytes]:
        """The events that have come whole with this chunk; ``end``: and nothing comes any more."""
        buffer = self._buffer + chunk if self._buffer else chunk
        size = len(buffer)
        # A carriage return at the end may be half of a line end.
        stop = size if end or not buffer.endswith(b"\r") else size - 1
        events: list[bytes] = []
        at = 0
        for found in _EVENT_END.finditer(buffer, max(self._seen - 3, 0), stop):
            events.append(buffer[at : found.end()])
            at = found.end()
        rest = buffer[at:]
        if end and rest:
            # What was broken off is no event for any client; nobody has looked at what half a text says.
            if not _is_broken(rest):
                events.append(rest)
            rest = b""
        self._buffer, self._seen = rest, len(rest)
        return events


def data_of(raw: bytes) -> bytes | None:
    """The data of an event; None when it has none."""
    if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2 and b"\r" not in raw:
        return raw[6:-2]
    lines = [line[5:] for line in _lines(raw) if line.startswith(b"data:")]
    if not lines:
        return None
    return b"\n".join([line[1:] if line.startswith(b" ") else line for line in lines])


def beside(raw: bytes) -> bytes:
    """What an event says beside its data, unless that is its kind alone; clients ignore all of it."""
    if _IS_PLAIN.match(raw) is not None:
        return b""
    return b"\n".join(line for line in _lines(raw) if not line.startswith(b"data:")).strip()


def without_rest(raw: bytes) -> bytes:
    """The event with its data alone; nothing where it has none."""
    lines = [line for line in _lines(raw) if line.startswith(b"data:")]
    return b"\n".join([*lines, b"", b""]) if lines else b""


def _lines(raw: bytes) -> list[bytes]:
    return _LINE_END.split(raw.removeprefix(_BOM))


def with_data(raw: bytes, data: bytes) -> bytes:
    """The event with other data; its other lines and its line ends stay."""
    ends = _LINE_END.findall(raw)
    lines = _LINE_END.split(raw)
    said = [b"data: " + line for line in data.split(b"\n")]
    end = ends[0] if ends else b"\n"
    pieces: list[bytes] = []
    for line, after in zip(lines, [*ends, b""], strict=True):
        if not line.removeprefix(_BOM).startswith(b"data:"):
            pieces.append(line + after)
        elif said:
            pieces.append(end.join(said) + after)
            said = []
    return b"".join(pieces)


def _is_broken(rest: bytes) -> bool:
    """Whether the body ended in the middle of an event."""
    data = data_of(rest)
    if data is None or not data.lstrip().startswith((b"{", b"[")) or data.strip() == DONE:
        return False
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return True
    return False
