"""Words and phrases from a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dataplane.config.guardrails import Keywords
from ipp.guardrails.matches import Match
from ipp.guardrails.selection import leftmost
from ipp.guardrails.words import WordFinder


class KeywordRule:
    """Kinds are ``word 0``, ``word 1`` and so on, by the place in the list."""

    is_local: ClassVar[bool] = True

    def __init__(self, parameters: Keywords, *, streaming: bool) -> None:
        self._finder = WordFinder(
            parameters.words,
            cased=parameters.case_sensitive,
            whole=parameters.whole_words,
            bounded=streaming,
        )
        self.longest = self._finder.longest if streaming else None

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        return leftmost(
            Match(hit.start, hit.end, f"word {hit.word}") for hit in self._finder.find(text, start)
        )
