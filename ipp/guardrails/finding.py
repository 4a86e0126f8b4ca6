"""Rules on one text that comes in pieces: what is found, what stands in its place, how far that is certain.

A finder is fed a text piece by piece and says of more and more of it, from the left, what becomes of it. What
it says never changes and does not depend on where pieces end: fed the whole text at once, it says the same.
This is what makes a stream as safe as a whole answer, so whole texts go through here too.

A rule's finds are certain ``longest + 1`` code points before the end of what has come. Of the finds of all
rules, in the order of where they begin, the longer first, each covers what none before it covers; so every
code point that any rule wants masked is. What lies within a placeholder of ours is nobody's find: the model
repeats what we wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Final, NamedTuple, Protocol

from dataplane.config.guardrails import Mode
from ipp.guardrails.masking import Vault
from ipp.guardrails.matches import Match, TextRule

STEP: Final = 32
"""Rules that look far look again and again at what is held back; so not at every word that comes."""

_HALVES: Final = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs, which no encoder takes."""


class Found(NamedTuple):
    """A find of a rule, for whoever makes verdicts of it."""

    rule: int
    """Its index in the finder's rules."""
    start: int
    end: int
    match: Match
    latency_ns: int


class Region(NamedTuple):
    """A part of a text, and what it becomes."""

    start: int
    end: int
    text: str


class Known(NamedTuple):
    """What a rule finds in a text, where it has looked before."""

    matches: list[Match]
    latency_ns: int


class Searcher(NamedTuple):
    """A text rule at work."""

    rule: TextRule
    mode: Mode
    replace: Callable[[Match, str], str]
    """From a find and the part of the text it covers, what stands there when it is masked."""
    known: Known | None = None
    """Of a text that is fed as a whole: what the rule finds."""


class Searchers:
    """All rules for texts of one stage, and the placeholders that are turned back on the way."""

    __slots__ = ("held", "items", "step", "vault")

    def __init__(self, items: Sequence[Searcher], vault: Vault | None = None) -> None:
        self.items = tuple(items)
        self.vault = vault or None
        self.held = max((searcher.rule.longest or 0 for searcher in items), default=0)
        """Code points at the end of an unfinished text of which nothing is certain yet."""
        self.step = STEP if self.held >= STEP else 1
        """Rules search again when so many code points more can become certain."""

    @property
    def delay(self) -> int:
        """Most code points at the end of a text that goes on that are held back."""
        placeholder = self.vault.longest - 1 if self.vault is not None else 0
        return max(self.held + self.step - 1, placeholder)


class Finder(Protocol):
    """Follows one text."""

    regions: list[Region]
    """What has been decided since somebody took it from here; in order, not overlapping."""
    found: list[Found]
    """Likewise, of all finds."""
    frontier: int
    """So many code points from the text's beginning on are decided: regions aside, they stay as they are."""
    blocked: Found | None
    """The find that ends it; ``frontier`` is where, or before, it begins."""

    def feed(self, piece: str, end: bool) -> None:
        """The text goes on with ``piece``; ``end``: and ends with it. Not to be called once blocked."""


class PlainFinder:
    """Follows a text that is what it says."""

    __slots__ = (
        "_base",
        "_covered",
        "_next",
        "_placeholder",
        "_rules",
        "_text",
        "blocked",
        "found",
        "frontier",
        "regions",
    )

    def __init__(self, rules: Searchers) -> None:
        self._rules = rules
        self._text = ""
        self._base = 0
        """Of the first code point of ``_text`` in the whole."""
        self._next = [0] * len(rules.items)
        """Where each rule's search goes on."""
        self._covered = 0
        self._placeholder = 0
        """End of the last placeholder."""
        self.regions: list[Region] = []
        self.found: list[Found] = []
        self.frontier = 0
        self.blocked: Found | None = None

    def feed(self, piece: str, end: bool) -> None:
        self._text += piece if _is_whole(piece) else _HALVES.sub("\ufffd", piece)
        base, rules = self._base, self._rules
        total = base + len(self._text)
        settled = total if end else total - rules.held
        old = self.frontier
        if rules.vault is not None and not end:
            settled = min(settled, base + rules.vault.unfinished(self._text, max(old - base, 0)))
        if settled - old < rules.step and not end:
            return
        finds = self._finds(settled)
        self._decide(finds)
        if self.blocked is None:
            self.frontier = max(settled, self._covered)
        self._forget()

    def _finds(self, settled: int) -> list[tuple[int, int, int, Match, int]]:
        """What begins before ``settled``: beginning, minus the end, rule or -1, find, time; sorted."""
        base, text = self._base, self._text
        finds: list[tuple[int, int, int, Match, int]] = []
        matches: Sequence[Match]
        for index, searcher in enumerate(self._rules.items):
            at = self._next[index]
            if at >= settled:
                continue
            if searcher.known is not None:
                matches, took = searcher.known
            else:
                began = perf_counter_ns()
                matches = searcher.rule.find(text, at - base)
                took = perf_counter_ns() - began
            for match in matches:
                start, stop = match.start + base, match.end + base
                if start >= settled:
                    break
                finds.append((start, -stop, index, match, took))
                at = stop
            self._next[index] = max(at, settled)
        if self._rules.vault is not None:
            for start, stop, original in self._rules.vault.find(text, max(self.frontier - base, 0)):
                if start + base < settled:
                    match = Match(start, stop, "", replacement=original)
                    finds.append((start + base, -stop - base, -1, match, 0))
        finds.sort(key=lambda find: find[:3])
        return finds

    def _decide(self, finds: Sequence[tuple[int, int, int, Match, int]]) -> None:
        for start, minus_stop, index, match, took in finds:
            stop = -minus_stop
            if index < 0:
                if start >= self._covered:
                    self._placeholder = stop
                    self._cover(start, stop, match.replacement or "")
                continue
            if stop <= self._placeholder:
                continue
            searcher = self._rules.items[index]
            found = Found(index, start, stop, match, took)
            self.found.append(found)
            if searcher.mode == "block":
                self._block(found)
                return
            if searcher.mode == "mask" and stop > self._covered:
                begin = max(start, self._covered)
                part = self._text[begin - self._base : stop - self._base]
                self._cover(begin, stop, searcher.replace(match, part))

    def _cover(self, start: int, stop: int, text: str) -> None:
        self.regions.append(Region(start, stop, text))
        self._covered = stop

    def _block(self, found: Found) -> None:
        self.blocked = found
        place = found.start
        while self.regions and self.regions[-1].end > place:
            place = min(place, self.regions.pop().start)
        self.frontier = max(self.frontier, place)

    def _forget(self) -> None:
        """Keep what a rule may look at again, and one code point before it."""
        keep = min((*self._next, self.frontier)) - 1
        if keep - self._base > 256:
            self._text = self._text[keep - self._base :]
            self._base = keep


def _is_whole(piece: str) -> bool:
    """Whether an encoder takes it, which says it sooner than an expression does."""
    try:
        return piece.isascii() or bool(piece.encode())
    except UnicodeEncodeError:
        return False


def applied(text: str, regions: Sequence[Region]) -> str:
    """The text with its regions replaced."""
    if not regions:
        return text
    pieces: list[str] = []
    at = 0
    for start, end, new in regions:
        pieces += (text[at:start], new)
        at = end
    pieces.append(text[at:])
    return "".join(pieces)
