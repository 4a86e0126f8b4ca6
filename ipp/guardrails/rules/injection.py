"""Text that tries to give the model other orders: a score, and the reasons for it.

Heuristics, not understanding: signs with weights, combined as if they were independent (``1 - product of
(1 - weight)``), of each kind the heaviest once. What tells of such orders without giving them ("never ignore
the previous instructions") counts less. Prompt injection that says nothing usual passes, and text about the
subject that quotes it is found; who needs more puts a judge or a webhook behind it.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dataplane.config.guardrails import PromptInjection
from ipp.guardrails import normalize
from ipp.guardrails.matches import Match
from ipp.guardrails.rules import injection_signs as signs
from ipp.guardrails.scanning import Item, Scanner
from ipp.guardrails.selection import leftmost
from ipp.guardrails.words import WordFinder, encoded

SPOKEN_OF: Final = 0.4
"""Factor for what is denied or reported."""
_BEFORE: Final = 14
_APART: Final = " \U0010ffff. "
"""Between texts that are looked at together; no sign reaches over it."""


class Verdict(NamedTuple):
    """What one text looks like."""

    score: float
    """0 to 1."""
    reasons: Sequence[Match]
    """Where which kind of sign is, with its weight; sorted, not overlapping."""


class InjectionRule:
    """Kinds are those of the signs: ``instructionOverride``, ``promptExtraction`` and so on."""

    longest = None

    def __init__(self, parameters: PromptInjection) -> None:
        self._threshold = parameters.threshold
        self._folded = Scanner(
            [Item(str(k), sign.pattern) for k, sign in enumerate(signs.SIGNS)], exact=False
        )
        self._raw = Scanner(
            [Item(str(k), sign.pattern) for k, sign in enumerate(signs.RAW_SIGNS)], exact=False
        )
        self._phrases = WordFinder([phrase for _, phrase in signs.PHRASES])

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        """The reasons, each with the whole text's score, when that reaches the threshold."""
        verdict = self.judge(text[start:])
        if verdict.score < self._threshold or not verdict.reasons:
            return []
        return [
            reason._replace(start=reason.start + start, end=reason.end + start, score=verdict.score)
            for reason in verdict.reasons
        ]

    def judge(self, text: str) -> Verdict:
        """The score, whatever the threshold."""
        found = [*self._by_signs(text), *self._by_phrases(text), *self._encoded(text)]
        heaviest: dict[str, float] = {}
        for match in found:
            heaviest[match.kind] = max(match.score, heaviest.get(match.kind, 0.0))
        score = 1 - math.prod(1 - weight for weight in heaviest.values())
        return Verdict(round(score, 4), leftmost(sorted(found, key=_heavy)))

    def _by_signs(self, text: str) -> Iterator[Match]:
        folded = normalize.fold(text)
        plain = folded.text()
        for match in self._folded.every(plain):
            sign = signs.SIGNS[int(match.kind)]
            before = plain[max(match.start - _BEFORE, 0) : match.start]
            weight = sign.weight * (SPOKEN_OF if before.endswith(signs.NEGATIONS) else 1)
            start, end = folded.original(match.start, match.end)
            yield Match(start, end, sign.kind, weight)
        for match in self._raw.every(text):
            sign = signs.RAW_SIGNS[int(match.kind)]
            yield Match(match.start, match.end, sign.kind, sign.weight)

    def _by_phrases(self, text: str) -> Iterator[Match]:
        for hit in self._phrases.find(text):
            if hit.disguised:
                yield Match(hit.start, hit.end, signs.DISGUISE, signs.DISGUISE_WEIGHT)

    def _encoded(self, text: str) -> Iterator[Match]:
        """Orders in base64, one layer deep, that no phrase has word by word."""
        found = list(encoded(text))
        if not found:
            return
        bounds = list(itertools.accumulate((len(said) + len(_APART) for _, _, said in found), initial=0))
        for match in self._by_signs(_APART.join(said for _, _, said in found)):
            if match.score >= SPOKEN_OF:
                start, size, _ = found[bisect.bisect_right(bounds, match.start) - 1]
                yield Match(start, start + size, signs.DISGUISE, signs.DISGUISE_WEIGHT)


def _heavy(match: Match) -> float:
    return -match.score
