"""Replace a text by another in bodies that pass in chunks: JSON, and server-sent events with JSON data.

What is replaced is decided by ``MemberScanner``. All other bytes pass as they came and at once; only a token
that may have to be replaced, or the beginning of a line that may hold data, waits for its rest. So a rewriter
holds less than ``MAX_HELD_BYTES``, and what comes out does not depend on where the chunks were cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from dataplane.payload.json_text import string
from dataplane.payload.member_scanner import MemberScanner, Spans

_LINE_END: Final = re.compile(rb"[\r\n]")
_DATA: Final = b"data:"
_CR: Final = 0x0D
_LF: Final = 0x0A


class JsonRewriter:
    """Rewrites a JSON text, or several one behind the other."""

    __slots__ = ("_carry", "_new", "_scanner")

    def __init__(self, paths: Sequence[Sequence[str]], old: str, new: str) -> None:
        """Replace ``old`` by ``new`` at ``paths``. ``ValueError`` when ``old`` is too long to look for."""
        self._scanner = MemberScanner(paths, old)
        self._new = string(new)
        self._carry = b""

    def feed(self, chunk: bytes, end: bool) -> bytes:
        """What is sent on for this chunk; the very chunk when nothing changes."""
        data = self._carry + chunk if self._carry else chunk
        found: Spans = []
        cut = self._scan(data, found)
        if end:
            cut = len(data)
        self._carry = data[cut:]
        if not found:
            return data if cut == len(data) else data[:cut]
        pieces: list[bytes] = []
        at = 0
        for start, stop in found:
            pieces += (data[at:start], self._new)
            at = stop
        pieces.append(data[at:cut])
        return b"".join(pieces)

    def _scan(self, data: bytes, found: Spans) -> int:
        """Where the bytes begin that have to wait for more."""
        return self._scanner.scan(data, 0, len(data), found)


class EventStreamRewriter(JsonRewriter):
    """Rewrites the data of each event of a stream.

    Lines may end in CR, LF or both; the data of an event may be spread over several lines. Comments, other
    fields and data that is no JSON, such as ``[DONE]``, pass as they are.
    """

    __slots__ = ("_after_cr", "_in_data", "_in_line")

    def __init__(self, paths: Sequence[Sequence[str]], old: str, new: str) -> None:
        super().__init__(paths, old, new)
        self._in_line = False
        self._in_data = False
        self._after_cr = False

    def _scan(self, data: bytes, found: Spans) -> int:
        at, size = 0, len(data)
        while at < size:
            if not self._in_line:
                start = self._begin_line(data, at)
                if start < 0:
                    return at
                at = start
                continue
            line_end = _LINE_END.search(data, at)
            stop = size if line_end is None else line_end.start()
            held = self._scanner.scan(data, at, stop, found) if self._in_data else stop
            if line_end is None:
                return held
            if self._in_data:
                self._scanner.end_line(held < stop)
            self._in_line = False
            self._after_cr = data[stop] == _CR
            at = stop + 1
        return size

    def _begin_line(self, data: bytes, at: int) -> int:
        """Go over an empty line, or to the data or the middle of another; -1 when it is too soon to tell."""
        byte = data[at]
        if byte in b"\r\n":
            if not (byte == _LF and self._after_cr):
                self._scanner.start_text()  # an empty line ends the event
            self._after_cr = byte == _CR
            return at + 1
        head = data[at : at + len(_DATA)]
        if head != _DATA and _DATA.startswith(head):
            return -1
        self._after_cr = False
        self._in_line = True
        self._in_data = head == _DATA
        return at + len(_DATA) if self._in_data else at
