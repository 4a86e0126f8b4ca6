"""Which of many finds stand: from the left, the longer one first; what begins inside an earlier one falls."""

from __future__ import annotations

from collections.abc import Iterable

from ipp.guardrails.matches import Match


def leftmost(found: Iterable[Match]) -> list[Match]:
    """The finds that stand, sorted; of equal spans the one that comes first in ``found``."""
    chosen: list[Match] = []
    end = 0
    for match in sorted(found, key=_order):
        if match.start >= end:
            chosen.append(match)
            end = match.end
    return chosen


def _order(match: Match) -> tuple[int, int]:
    return match.start, -match.end
