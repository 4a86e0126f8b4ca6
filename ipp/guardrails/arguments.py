"""Arguments of tool calls: JSON that is the text of a JSON string, and comes in pieces that end anywhere.

Each string in it is a text of its own, keys included: it is decoded as it comes, rules see what it says, and
what stands in the place of a find is written with the escapes it needs, so arguments that were JSON are JSON
afterwards. A number or literal is a text as well, as a card number is; one in which something is masked
becomes a string. Text that does not begin like JSON is looked at as it is.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Final

from ipp.guardrails.finding import Found, PlainFinder, Region, Searchers, applied

MAX_RUN: Final = 4096
"""Code points of a number or literal, or of space before the first; longer ones are no JSON anybody means."""

_STRUCTURE: Final = re.compile("[\\s{}\\[\\],:\ufeff\x1e]*+")
_BEFORE: Final = " \t\r\n\ufeff\x1e"
"""What may stand before JSON."""
_TO_STRUCTURE: Final = re.compile(r'[^{}\[\],:"]*+')
_PLAIN: Final = re.compile(r'[^"\\]*+')
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([^u]))", re.DOTALL)
_LOW_HALF: Final = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_SAYS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE_SIZE: Final = 6


class ArgumentsFinder:
    """Follows the text of arguments."""

    __slots__ = (
        "_at",
        "_base",
        "_buffer",
        "_inner",
        "_is_inside",
        "_is_plain",
        "_places",
        "_raws",
        "_rules",
        "_said",
        "blocked",
        "found",
        "frontier",
        "regions",
    )

    def __init__(self, rules: Searchers) -> None:
        self._rules = rules
        self._buffer = ""
        """What is not read yet, or belongs to a number or escape that is not whole."""
        self._base = 0
        """Of the buffer's first code point."""
        self._is_plain: bool | None = None
        self._inner = PlainFinder(rules)
        """Of the string that is being read, or of everything when it is no JSON."""
        self._is_inside = False
        self._said = 0
        self._places: list[int] = []
        self._raws: list[int] = []
        """Code points of the string where a new piece of it begins, and where that is in the arguments."""
        self.regions: list[Region] = []
        self.found: list[Found] = []
        self.frontier = 0
        self.blocked: Found | None = None

    def feed(self, piece: str, end: bool) -> None:
        if self._is_plain:
            self._feed_plain(piece, end)
            return
        self._buffer += piece
        if self._is_plain is None:
            begin = self._buffer.lstrip(_BEFORE)
            is_long = len(self._buffer) - len(begin) > MAX_RUN
            if not begin and not end and not is_long:
                return
            self._is_plain = not is_long and (not begin or begin[0] not in '{["')
            if self._is_plain:
                piece, self._buffer = self._buffer, ""
                self._feed_plain(piece, end)
                return
        at = 0
        while self.blocked is None:
            after = self._in_string(at, end) if self._is_inside else self._between(at, end)
            if after == at:
                break
            at = after
        self._buffer = self._buffer[at:]
        self._base += at

    def _feed_plain(self, piece: str, end: bool) -> None:
        inner = self._inner
        inner.feed(piece, end)
        self.regions += inner.regions
        self.found += inner.found
        inner.regions, inner.found = [], []
        self.frontier, self.blocked = inner.frontier, inner.blocked

    def _between(self, at: int, end: bool) -> int:
        """Read structure, or a number that is whole; answers how far."""
        buffer = self._buffer
        begin = _STRUCTURE.match(buffer, at).end()  # type: ignore[union-attr]  # matches anything
        if begin > at:
            self.frontier = max(self.frontier, self._base + begin)
            return begin
        after = _TO_STRUCTURE.match(buffer, at, at + MAX_RUN).end()  # type: ignore[union-attr]
        is_long = after - at == MAX_RUN
        is_whole = after < len(buffer) and not is_long
        if not is_whole and not end and not is_long:
            self.frontier = max(self.frontier, self._base + at)
            return at
        if after > at:
            self._number(at, after)
            if self.blocked is not None:
                return after
        if is_whole:
            if buffer[after] == '"':
                self._inner = PlainFinder(self._rules)
                self._is_inside = True
                self._said = 0
                self._places, self._raws = [0], [self._base + after + 1]
            after += 1
        self.frontier = max(self.frontier, self._base + after)
        return after

    def _number(self, at: int, after: int) -> None:
        """A number, a literal, or whatever else stands between structure."""
        run = self._buffer[at:after]
        start = self._base + at
        run = run.rstrip()
        finder = PlainFinder(self._rules)
        finder.feed(run, True)
        self.found += [
            found._replace(start=found.start + start, end=found.end + start) for found in finder.found
        ]
        if finder.blocked is not None:
            self.blocked = self.found[-1]
        elif finder.regions:
            said = json.dumps(applied(run, finder.regions), ensure_ascii=False)
            self.regions.append(Region(start, start + len(run), said))

    def _in_string(self, at: int, end: bool) -> int:
        """Read on in a string, at most to its end; answers how far."""
        buffer, base = self._buffer, self._base
        said: list[str] = []
        size = len(buffer)
        closed = False
        while at < size:
            plain = _PLAIN.match(buffer, at)
            if plain is not None and plain.end() > at:
                said.append(plain[0])
                self._said += plain.end() - at
                at = plain.end()
                continue
            if buffer[at] == '"':
                closed = True
                break
            after = self._escape(at, end, said)
            if after == at:
                break
            at = after
        inner = self._inner
        inner.feed("".join(said), closed or end)
        self._take(inner)
        if not closed or self.blocked is not None:
            return at
        self._is_inside = False
        self.frontier = base + at + 1
        return at + 1

    def _escape(self, at: int, end: bool, said: list[str]) -> int:
        """Read one escape; answers how far, which is not at all when it is not whole."""
        buffer = self._buffer
        found = _ESCAPE.match(buffer, at)
        if found is None:
            if len(buffer) - at < _ESCAPE_SIZE and not end:
                return at
            char, after = buffer[at], at + 1  # no escape at all: it says what it is
        elif found[2] is not None:
            char, after = _SAYS.get(found[2], found[2]), found.end()
        else:
            code, after = int(found[1], 16), found.end()
            if 0xD800 <= code < 0xDC00:
                low = _LOW_HALF.match(buffer, after)
                if low is not None:
                    code = 0x10000 + ((code - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
                    after = low.end()
                elif (
                    len(buffer) - after < _ESCAPE_SIZE
                    and "\\u".startswith(buffer[after : after + 2])
                    and not end
                ):
                    return at
            char = chr(code)
        self._mark(self._base + at)
        said.append(char)
        self._said += 1
        self._mark(self._base + after)
        return after

    def _mark(self, raw: int) -> None:
        """Note that the string goes on at this place of the arguments."""
        if self._places[-1] == self._said:
            self._raws[-1] = raw
        else:
            self._places.append(self._said)
            self._raws.append(raw)

    def _place(self, place: int) -> int:
        """Where a code point of the string is in the arguments."""
        index = bisect_right(self._places, place) - 1
        return self._raws[index] + place - self._places[index]

    def _take(self, inner: PlainFinder) -> None:
        for start, stop, new in inner.regions:
            said = json.dumps(new, ensure_ascii=False)[1:-1]
            self.regions.append(Region(self._place(start), self._place(stop), said))
        for found in inner.found:
            start, stop = self._place(found.start), self._place(found.end)
            self.found.append(found._replace(start=start, end=stop))
        inner.regions, inner.found = [], []
        self.frontier = max(self.frontier, self._place(inner.frontier))
        if inner.blocked is not None:
            self.blocked = self.found[-1]
        vault = self._rules.vault
        reach = self._rules.held + (vault.longest if vault is not None else 0)
        index = max(bisect_right(self._places, inner.frontier - reach) - 1, 0)
        del self._places[:index], self._raws[:index]
