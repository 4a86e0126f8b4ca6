"""``weighted-random-picker``: which model it takes."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

from dataplane.plugin.base import PluginParams, TypedName
from ipp.plugins.model_pickers.weighted_random import WeightedRandomPicker

ANY: Any = None


def picks(*totals: float, times: int = 2000) -> Counter[int]:
    handle: Any = SimpleNamespace(rng=random.Random(5))
    picker = WeightedRandomPicker(TypedName("weighted-random-picker", "p"), PluginParams(), handle)
    return Counter(picker.pick_model(ANY, totals) for _ in range(times))


def test_chances_are_in_proportion_to_scores() -> None:
    found = picks(0.75, 0.0, 0.25)
    assert found.keys() == {0, 2}
    assert 1350 < found[0] < 1650


def test_without_any_score_all_have_the_same_chance() -> None:
    found = picks(0.0, 0.0)
    assert 850 < found[0] < 1150
