"""How scorers turn counts of requests into scores between 0 and 1."""

from __future__ import annotations

import numpy as np

from epp.interfaces.endpoint import Floats


def fewer_is_better(counts: Floats, min_spread: float) -> Floats:
    """1.0 for the smallest count, falling linearly over the spread between smallest and largest.

    A spread below ``min_spread`` is stretched to it, so that a small difference stays a small difference.
    All equal: 1.0 each. No counts: no scores.
    """
    if not counts.size:
        return counts
    least = counts.item(counts.argmin())  # arg searches cost a fifth of reductions on short arrays
    spread = max(counts.item(counts.argmax()) - least, min_spread)
    if spread <= 0:
        return np.ones(counts.size)
    scores: Floats = 1.0 - (counts - least) / spread  # in this order the smallest count scores exactly 1.0
    return scores


def fewer_is_better_of_few(counts: list[float], min_spread: float) -> list[float]:
    """``fewer_is_better`` on a list, to the same bits."""
    if not counts:
        return counts
    least = min(counts)
    spread = max(max(counts) - least, min_spread)
    return [1.0 - (count - least) / spread for count in counts] if spread > 0 else [1.0] * len(counts)
