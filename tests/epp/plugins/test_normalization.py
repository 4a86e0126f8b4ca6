"""Counts become scores: whatever the counts, fewer never scores less."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from epp.plugins.normalization import fewer_is_better


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.floats(0, 100))
def test_scores_are_ordered_and_within_range(counts: list[int], min_spread: float):
    scores = fewer_is_better(np.array(counts, dtype=float), min_spread)
    assert scores.max() == 1.0
    assert scores.min() >= 0.0
    for i, j in zip(np.argsort(counts)[:-1], np.argsort(counts)[1:], strict=True):
        assert scores[i] > scores[j] if counts[i] < counts[j] else scores[i] == scores[j]
