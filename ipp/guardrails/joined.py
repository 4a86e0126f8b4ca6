"""Many texts looked at in one go: what a rule costs for each text, however short, it costs once.

A request may have hundreds of messages. Rules whose finds depend on nothing but the characters around them
look at all texts joined; a find within one text is a find in that text, and the same as the rule would have
made of it alone. What spans a joint is no find: the texts it touches are looked at one by one. So are those
of rules that need to know where a text begins or ends, or what it is as a whole.

A joint is a character that belongs to no word, number or address, that RE2 does not take for white space, and
that stands for nothing when it is folded but a space, of which words have none at their ends: so for every
rule a text begins and ends at a joint as it does by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from time import perf_counter_ns
from typing import Final

from ipp.guardrails.finding import Known, Searcher, Searchers
from ipp.guardrails.matches import Match, TextRule

JOINT: Final = "\x1f"
MIN_TEXTS: Final = 3
"""Fewer texts are looked at one by one."""


class Idle:
    """A rule that finds nothing."""

    longest = 0
    is_local = True

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        return ()


IDLE: Final = Idle()


def is_local(rule: TextRule) -> bool:
    """Whether what it finds in a text it finds in the text joined with others as well."""
    return bool(getattr(rule, "is_local", False))


class Together:
    """What rules find in texts, as far as it can be told at once."""

    def __init__(self, said: Sequence[str], searchers: Searchers) -> None:
        """``said`` are all texts; empty ones are left out by whoever asks."""
        self._searchers = searchers
        self._ends = list(accumulate(len(words) + 1 for words in said))
        self._known: dict[int, dict[int, Known]] = {}
        """Text -> rule -> what it finds."""
        self._alone: set[int] = set()
        """Texts that something spans a joint of."""
        self._idle: dict[int, Searchers | None] = {}
        if len(said) < MIN_TEXTS or searchers.vault is not None:
            self._alone.update(range(len(said)))
            return
        joined = JOINT.join(said)
        for index, searcher in enumerate(searchers.items):
            if searcher.rule is not IDLE and is_local(searcher.rule):
                self._look(joined, index, searcher.rule)

    def _look(self, joined: str, index: int, rule: TextRule) -> None:
        began = perf_counter_ns()
        matches = rule.find(joined)
        took = perf_counter_ns() - began
        ends = self._ends
        for match in matches:
            which = bisect_right(ends, match.start)
            if match.end >= ends[which]:
                self._alone.update(range(which, bisect_right(ends, match.end) + 1))
                continue
            begin = ends[which - 1] if which else 0
            own = match._replace(start=match.start - begin, end=match.end - begin)
            known = self._known.setdefault(which, {}).setdefault(index, Known([], took))
            known.matches.append(own)

    def of(self, which: int, base: Searchers) -> Searchers | None:
        """What is left to do for a text; None = nothing is found in it.

        ``base`` are the searchers, of which some may be idle.
        """
        if which in self._alone:
            return base
        known = self._known.get(which)
        if known is not None:
            return Searchers([self._told(known, *each) for each in enumerate(base.items)])
        if id(base) not in self._idle:
            items = [self._told({}, *each) for each in enumerate(base.items)]
            is_over = all(searcher.rule is IDLE or searcher.known is not None for searcher in items)
            self._idle[id(base)] = None if is_over else Searchers(items)
        return self._idle[id(base)]

    def _told(self, known: dict[int, Known], index: int, searcher: Searcher) -> Searcher:
        if searcher.rule is IDLE or not is_local(searcher.rule):
            return searcher
        return searcher._replace(known=known.get(index, _NOTHING))


_NOTHING: Final = Known([], 0)
