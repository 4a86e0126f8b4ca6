"""Placeholders in the place of what is masked, and the way back.

A placeholder is the kind of what it hides, and a number: ``<EMAIL_1>``. The same value has the same one all
through an exchange, so a model can tell people apart, and a conversation that is sent again and again with
one more message is masked the same way every time, which keeps its prefix in the caches of model servers.
Nobody can forge one: a name that occurs anywhere in the request as the client sent it is not given out, so
whatever stands in an answer as a placeholder of ours is one that we wrote. A vault lives for one exchange, so
no answer can hold what another caller sent.

What is not to be restored, and everything that is masked in answers, gets a name without a number:
``[EMAIL]`` for what identifies people, ``***`` for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ipp.guardrails.matches import Match, RuleKey, TextRule

HIDDEN: Final = "***"
MAX_PLACEHOLDERS: Final = 10_000
"""Different values that one vault holds; what comes beyond is masked for good."""

_LOOKS_LIKE_ONE: Final = re.compile(r"<[A-Z_]{1,40}_[0-9]{1,9}>")
_ESCAPE: Final = re.compile(r"\\u00([0-7][0-9a-fA-F])")
"""Of a letter, in arguments of tool calls."""
_NO_LETTERS: Final = re.compile(r"[^A-Za-z]+")
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


@lru_cache(maxsize=4096)
def label(kind: str) -> str:
    """``nationalId`` -> ``NATIONAL_ID``."""
    words = _NO_LETTERS.sub(" ", _HUMP.sub(" ", kind)).split()
    return "_".join(words).upper()[:40].strip("_") or "HIDDEN"


def hidden(kind: str, match: Match, *, names: bool) -> str:
    """What stands in the place of something that is masked for good; ``names``: whether it says its kind."""
    if match.replacement is not None:
        return match.replacement
    return f"[{label(kind)}]" if names else HIDDEN


def _said(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))


class Vault:
    """What is kept of a request for its answer: what placeholders stand for. Empty and false without any."""

    __slots__ = (
        "_by_value",
        "_counts",
        "_has_heads",
        "_heads",
        "_originals",
        "_taken",
        "expected",
        "longest",
    )

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}
        self._by_value: dict[tuple[str, str], str] = {}
        self._originals: dict[str, str] = {}
        self._heads: set[str] = set()
        """Their beginnings; made when a stream asks for them."""
        self._has_heads = 0
        """Of how many placeholders."""
        self.longest = 0
        """Code points of the longest placeholder."""
        self.expected: dict[RuleKey, TextRule] = {}
        """Rules that follow from the request, by the rule for answers that each replaces."""

    def __len__(self) -> int:
        return len(self._originals)

    def kept(self) -> Vault:
        """One by which all placeholders stay what they are, and nobody takes them for anything else."""
        other = Vault()
        other._originals = {made: made for made in self._originals}
        other.longest, other.expected = self.longest, self.expected
        return other

    def avoid(self, texts: Iterable[str]) -> None:
        """Do not give out what occurs in these."""
        for text in texts:
            if "<" in text or "\\" in text:
                self._taken.update(_LOOKS_LIKE_ONE.findall(_ESCAPE.sub(_said, text)))

    def placeholder(self, kind: str, value: str) -> str | None:
        """The one that stands for the value; None when the vault is full."""
        name = label(kind)
        known = self._by_value.get((name, value))
        if known is not None:
            return known
        if len(self._originals) >= MAX_PLACEHOLDERS:
            return None
        number = self._counts.get(name, 0) + 1
        while (made := f"<{name}_{number}>") in self._taken:
            number += 1
        self._counts[name] = number
        self._by_value[name, value] = made
        self._originals[made] = value
        self.longest = max(self.longest, len(made))
        return made

    def find(self, text: str, start: int) -> list[tuple[int, int, str]]:
        """The placeholders from ``start`` on: where each begins and ends, and what it stands for."""
        found = []
        at = text.find("<", start)
        while at >= 0:
            end = text.find(">", at + 1, at + self.longest) + 1
            original = self._originals.get(text[at:end]) if end else None
            if original is not None:
                found.append((at, end, original))
            at = text.find("<", at + 1)
        return found

    def unfinished(self, text: str, start: int) -> int:
        """Where a placeholder begins that may go on behind the text's end; its length when none does."""
        size = len(text)
        at = text.find("<", max(start, size - self.longest + 1))
        if at >= 0 and self._has_heads < len(self._originals):
            self._has_heads = len(self._originals)
            self._heads = {made[:end] for made in self._originals for end in range(1, len(made))}
        while at >= 0:
            if text[at:] in self._heads:
                return at
            at = text.find("<", at + 1)
        return size
