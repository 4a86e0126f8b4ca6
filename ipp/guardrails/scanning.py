"""Many patterns over one text: one pass of RE2's set says which occur, and only those are located.

Matches are checked by a function where a pattern alone cannot say it (check digits, addresses). What such a
check refuses hides nothing: the search goes on one character later. Places are code points, although RE2
works on UTF-8; a lone surrogate, which UTF-8 has none of, counts as one unknown character.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import re2

from ipp.guardrails import normalize
from ipp.guardrails.matches import Match
from ipp.guardrails.pattern_length import greatest_length
from ipp.guardrails.selection import leftmost

MAX_SET_MEMORY: Final = 32 << 20
"""Bytes that the pass over a group of patterns may take; beyond them each pattern is looked for by itself."""
SET_SIZE: Final = 100
"""Patterns in a group."""

Check = Callable[[bytes, int, int], int]
"""Text, start and end of a candidate in bytes -> where the match really ends; below zero, it is none.

Minus a place behind the start says that no match begins before that place either.
"""

_ANYWHERE: Final[Any] = getattr(re2, "_Anchor", None) and re2._Anchor.UNANCHORED
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


Search = Callable[[bytes, int], tuple[int, int] | None]
"""Text and a place in bytes -> the first match that begins there or later."""


Span = tuple[int, int, int]
"""Start and end in bytes, and which pattern."""


class Item(NamedTuple):
    """One pattern."""

    kind: str
    pattern: str
    check: Check | None = None
    search: Search | None = None
    """Locates matches instead of the pattern, which then only says that there may be some."""
    length: int | None = None
    """Most code points of a match, where the pattern does not say it."""

    @property
    def longest(self) -> int | None:
        """Most code points that a match spans; None = there is no bound."""
        return greatest_length(self.pattern) if self.length is None else self.length


class Scanner:
    """Finds what any of the patterns matches; one instance for all texts."""

    def __init__(self, items: Sequence[Item], *, case_sensitive: bool = True, exact: bool = True) -> None:
        """``exact``: patterns have bounded lengths, so that a search may begin anew behind every match.

        Without it each pattern's own matches are located first and those that overlap fall, which takes time
        linear in the text whatever the patterns.
        """
        self._items, self._exact = items, exact
        options = re2.Options()
        options.case_sensitive, options.log_errors = case_sensitive, False
        options.never_capture = True
        self._locate = [locating(re2.compile(item.pattern.encode(), options)) for item in items]
        options = re2.Options()
        options.case_sensitive, options.log_errors = case_sensitive, False
        options.max_mem = MAX_SET_MEMORY
        self._groups = [
            (
                range(first, min(first + SET_SIZE, len(items))),
                _occurrence(items[first : first + SET_SIZE], options),
            )
            for first in range(0, len(items), SET_SIZE)
        ]

    def find(self, text: str, start: int = 0) -> list[Match]:
        """What begins at ``start`` or later, sorted, not overlapping."""
        context = max(start - 1, 0)
        shown = text[context:] if context else text
        raw = utf8(shown)
        occurring = self._occurring(raw)
        if not occurring:
            return []
        at = len(utf8(shown[: start - context]))
        if self._exact:
            return self._matches(raw, shown, context, self._exactly(raw, occurring, at))
        return leftmost(self._matches(raw, shown, context, self._each(raw, occurring, at)))

    def every(self, text: str) -> list[Match]:
        """All that each pattern matches by itself, overlapping, in no order."""
        raw = utf8(text)
        return self._matches(raw, text, 0, self._each(raw, self._occurring(raw), 0))

    def _matches(self, raw: bytes, text: str, context: int, spans: Iterable[Span]) -> list[Match]:
        """From places in bytes to places in the whole text."""
        if len(raw) == len(text):
            return [Match(s + context, e + context, self._items[k].kind) for s, e, k in spans]
        begins = (np.frombuffer(raw + b"a", np.uint8) & 0xC0) != 0x80
        places = normalize.counted(begins) - 1 + context
        return [Match(int(places[s]), int(places[e]), self._items[k].kind) for s, e, k in spans]

    def _occurring(self, raw: bytes) -> list[int]:
        found: list[int] = []
        for indices, occurrence in self._groups:
            matched = occurrence.Match(raw) if occurrence is not None else []
            # The last of a set matches every text: without it the pass ran out of memory and says nothing.
            complete = len(indices) in matched
            found += [indices[k] for k in sorted(matched) if k < len(indices)] if complete else indices
        return found

    def _search(self, raw: bytes, index: int, at: int) -> tuple[int, int] | None:
        item = self._items[index]
        if item.search is not None:
            return item.search(raw, at)
        check = item.check
        locate = self._locate[index]
        while (found := locate(raw, at)) is not None:
            start, end = found
            if check is not None:
                end = check(raw, start, end)
            if end > start:
                return start, end
            at = max(start + 1, -end)
        return None

    def _exactly(self, raw: bytes, occurring: Iterable[int], at: int) -> list[Span]:
        """From the left, the longest first, each search beginning anew behind the match before."""
        ahead = [
            (found[0], -found[1], index)
            for index in occurring
            if (found := self._search(raw, index, at)) is not None
        ]
        heapq.heapify(ahead)
        chosen: list[Span] = []
        while ahead:
            start, end, index = ahead[0][0], -ahead[0][1], ahead[0][2]
            if start >= at:
                chosen.append((start, end, index))
                at = end
            if (found := self._search(raw, index, at)) is not None:
                heapq.heapreplace(ahead, (found[0], -found[1], index))
            else:
                heapq.heappop(ahead)
        return chosen

    def _each(self, raw: bytes, occurring: Iterable[int], at: int) -> list[Span]:
        """What each pattern matches by itself."""
        spans: list[Span] = []
        for index in occurring:
            locate, begin = self._locate[index], at
            while begin <= len(raw) and (found := locate(raw, begin)) is not None:
                start, end = found
                if end > start:
                    spans.append((start, end, index))
                begin = end if end > begin else begin + 1
        return spans


def locating(compiled: Any) -> Search:
    """Where a pattern matches first from a place on.

    As its ``search`` says it, but without what that makes of each match, which takes four times as long as
    to find it.
    """
    matches: Any = getattr(getattr(compiled, "_regexp", None), "Match", None)
    if matches is None or _ANYWHERE is None:
        return lambda raw, at: None if (found := compiled.search(raw, at)) is None else found.span()

    def locate(raw: bytes, at: int) -> tuple[int, int] | None:
        span: tuple[int, int] = matches(_ANYWHERE, raw, at, len(raw))[0]
        return None if span[0] < 0 else span

    return locate


def _occurrence(items: Sequence[Item], options: Any) -> Any:
    """Which of the patterns occur in a text; None when they are too many for one pass."""
    occurrence = re2.Set.SearchSet(options)
    for item in items:
        occurrence.Add(item.pattern.encode())
    occurrence.Add(b"")
    try:
        occurrence.Compile()
    except re2.error:
        return None
    return occurrence


def utf8(text: str) -> bytes:
    """The text as RE2 reads it; lone surrogates become U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text).encode()
