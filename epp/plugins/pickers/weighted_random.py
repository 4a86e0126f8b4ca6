"""Pick endpoints at random with a chance proportional to their score.

Spreads more than max-score-picker and still prefers the better ones. An endpoint with score 0 is picked only
when nobody with a positive score is left; among such endpoints the choice is uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest


class WeightedRandomPickerParams(PluginParams, frozen=True):
    """Parameters of weighted-random-picker."""

    max_num_of_endpoints: int = 1
    """Endpoints to pick, without repetition; less than 1 counts as 1."""


class WeightedRandomPicker:
    """Picks by lot, weighted by score."""

    info: ClassVar = PluginInfo("weighted-random-picker", WeightedRandomPickerParams)

    def __init__(self, name: TypedName, params: WeightedRandomPickerParams, handle: Handle) -> None:
        self.name = name
        self._count = max(1, params.max_num_of_endpoints)
        self._rng = handle.rng

    def pick(self, request: InferenceRequest, candidates: Candidates, totals: Floats) -> Sequence[int]:
        """Distinct positions, drawn one after the other."""
        count = min(self._count, totals.size)
        if count == 1:
            return (self._draw(totals),)
        left = totals.copy()
        picked: list[int] = []
        while len(picked) < count and left.any():
            picked.append(self._draw(left))
            left[picked[-1]] = 0.0
        others = np.setdiff1d(np.arange(totals.size), picked).tolist()
        return [*picked, *self._rng.sample(others, count - len(picked))]

    def _draw(self, weights: Floats) -> int:
        """One position; uniform when all weights are 0."""
        steps = np.add.accumulate(weights)
        total = float(steps[-1])
        if total <= 0.0:
            return int(self._rng.random() * weights.size)
        position = int(np.searchsorted(steps, self._rng.random() * total, side="right"))
        if position == weights.size:  # the draw was rounded up to the total
            position = int(np.flatnonzero(weights)[-1])
        return position
