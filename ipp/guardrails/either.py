"""Whether an answer is an event stream or a whole one, by what it says and not by its content type alone.

A model server that names the wrong type would otherwise have its events looked at as if nothing went on from
one to the next, or its JSON as if it were no data of any event.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal

from dataplane.extproc.events import BodyTransform, Push, Pushing

StreamKind = Literal["sse", "json"]

MAX_SPACE: Final = 4096
"""White space before anything is said; with more the type is believed."""
_SPACE: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"
_FIELD: Final = re.compile(rb"(?:data|event|id|retry)?:")
_LONGEST_FIELD: Final = 6


class EitherGuard:
    """Waits for the first bytes, and then feeds all of them to the guard of what they are."""

    __slots__ = ("_guard", "_head", "_kind", "_open", "_push")

    def __init__(self, kind: StreamKind, open_guard: Callable[[StreamKind], BodyTransform | None]) -> None:
        """``kind`` is what the content type says; ``open_guard`` answers None for what passes unseen."""
        self._kind = kind
        self._open = open_guard
        self._head: bytes | None = b""
        self._guard: BodyTransform | None = None
        self._push: Push | None = None

    def attach(self, push: Push) -> None:
        """For the guard, if it has use for it."""
        self._push = push

    def feed(self, chunk: bytes, end: bool) -> bytes:
        if self._head is not None:
            head = self._head + chunk if self._head else chunk
            kind = kind_of(head, self._kind, is_whole=end or len(head) > MAX_SPACE)
            if kind is None:
                self._head = head
                return b""
            self._head, chunk = None, head
            guard = self._guard = self._open(kind)
            if self._push is not None and isinstance(guard, Pushing):
                guard.attach(self._push)
        return chunk if self._guard is None else self._guard.feed(chunk, end)


def kind_of(head: bytes, said: StreamKind, *, is_whole: bool) -> StreamKind | None:
    """What a body is that begins like this; None when that is not to be told yet."""
    begin = head.lstrip(_SPACE).removeprefix(_BOM).lstrip(_SPACE)
    if said == "sse":
        if begin.startswith((b"{", b"[")):
            return "json"
        return None if _BOM.startswith(begin) and not is_whole else "sse"
    if _FIELD.match(begin) is not None:
        return "sse"
    return "json" if len(begin) >= _LONGEST_FIELD or is_whole else None
