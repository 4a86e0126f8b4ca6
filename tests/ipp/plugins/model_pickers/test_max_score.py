"""``max-score-picker``: which model it takes."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

from dataplane.plugin.base import PluginParams, TypedName
from ipp.plugins.model_pickers.max_score import MaxScorePicker

ANY: Any = None


def picks(*totals: float, times: int = 2000) -> Counter[int]:
    handle: Any = SimpleNamespace(rng=random.Random(5))
    picker = MaxScorePicker(TypedName("max-score-picker", "p"), PluginParams(), handle)
    return Counter(picker.pick_model(ANY, totals) for _ in range(times))


def test_the_best_is_picked_always() -> None:
    assert picks(0.1, 0.9, 0.5) == {1: 2000}


def test_equals_are_drawn_by_lot() -> None:
    found = picks(0.9, 0.1, 0.9)
    assert found.keys() == {0, 2}
    assert 850 < found[0] < 1150
