"""Texts that a client sends in several parts, and a model reads as one.

What is split over two parts of a message is in neither. So parts are looked at joined as well, by rules that
block or flag; what is masked is found in each part for itself, since nobody hides from being protected, and
numbers that merely end and begin two parts are no card.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from ipp.guardrails.finding import Found, PlainFinder, Searchers
from ipp.guardrails.joined import Together
from ipp.guardrails.shapes import Kind
from ipp.guardrails.texts import Keys, Text

_SAYING: Final = (b"text", b"refusal", b"thinking")
"""What a part has its text in."""
_LISTS: Final = (b"content", b"system")
"""Lists of parts, which may be strings."""


def across_parts(
    texts: Sequence[Text], said: Sequence[str], searchers: Searchers
) -> Iterator[tuple[Text, Found]]:
    """What is found across parts: the one it begins in, and the find with its place from there on."""
    groups = list(_groups(texts))
    wholes = ["".join([said[part] for part in group]) for group in groups]
    together = Together(wholes, searchers)
    for index, group in enumerate(groups):
        mine = together.of(index, searchers)
        if mine is None:
            continue
        words = [said[part] for part in group]
        finder = PlainFinder(mine)
        finder.feed(wholes[index], True)
        if not finder.found:
            continue
        ends = list(accumulate(map(len, words)))
        for found in finder.found:
            part = bisect_right(ends, found.start)
            if found.end > ends[part]:
                begin = ends[part] - len(words[part])
                yield texts[group[part]], found._replace(start=found.start - begin, end=found.end - begin)


def _groups(texts: Sequence[Text]) -> Iterator[list[int]]:
    """Indices of texts that are parts of one message; at least two."""
    group: list[int] = []
    around: tuple[object, ...] | None = None
    for index, text in enumerate(texts):
        whose = _message(text.keys) if text.kind is Kind.TEXT else None
        if whose is None:
            continue
        if whose != around:
            if len(group) > 1:
                yield group
            group, around = [], whose
        group.append(index)
    if len(group) > 1:
        yield group


def _message(keys: Keys) -> Keys | None:
    """The list that a text is a part of; None when it is none. Some servers take parts that are strings."""
    if len(keys) > 1 and keys[-1] in _SAYING and isinstance(keys[-2], int):
        return keys[:-2]
    return keys[:-1] if len(keys) > 1 and keys[-2] in _LISTS and isinstance(keys[-1], int) else None
