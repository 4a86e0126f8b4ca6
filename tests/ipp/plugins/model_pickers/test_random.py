"""``random-picker``: which model it takes."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

from dataplane.plugin.base import PluginParams, TypedName
from ipp.plugins.model_pickers.random import RandomPicker

ANY: Any = None


def picks(*totals: float, times: int = 2000) -> Counter[int]:
    handle: Any = SimpleNamespace(rng=random.Random(5))
    picker = RandomPicker(TypedName("random-picker", "p"), PluginParams(), handle)
    return Counter(picker.pick_model(ANY, totals) for _ in range(times))


def test_scores_count_for_nothing() -> None:
    found = picks(0.0, 0.9)
    assert found.keys() == {0, 1}
    assert 850 < found[0] < 1150
