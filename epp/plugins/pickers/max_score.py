"""Pick the endpoints with the highest total score; among equals, uniformly at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest

_LIST_IS_FASTER_BELOW: Final = 64
"""Candidates up to which a plain list is searched faster than an array."""


class MaxScorePickerParams(PluginParams, frozen=True):
    """Parameters of max-score-picker."""

    max_num_of_endpoints: int = 1
    """Endpoints to pick, best first; less than 1 counts as 1."""


class MaxScorePicker:
    """Picks by score."""

    info: ClassVar = PluginInfo("max-score-picker", MaxScorePickerParams)

    def __init__(self, name: TypedName, params: MaxScorePickerParams, handle: Handle) -> None:
        self.name = name
        self._count = max(1, params.max_num_of_endpoints)
        self._rng = handle.rng

    def pick(self, request: InferenceRequest, candidates: Candidates, totals: Floats) -> Sequence[int]:
        """Positions of the best candidates, best first."""
        if self._count > 1:
            return self._pick_many(totals)
        if totals.size < _LIST_IS_FASTER_BELOW:
            scores = totals.tolist()
            best = max(scores)
            if scores.count(best) == 1:
                return (scores.index(best),)
        ties = np.flatnonzero(totals == np.maximum.reduce(totals))
        if ties.size == 1:
            return (int(ties[0]),)
        return (int(ties[int(self._rng.random() * ties.size)]),)

    def _pick_many(self, totals: Floats) -> list[int]:
        """The best ``_count``; candidates that tie for the last places are drawn by lot."""
        count = min(self._count, totals.size)
        last = np.partition(totals, totals.size - count)[totals.size - count]
        above = np.flatnonzero(totals > last).tolist()
        tied = np.flatnonzero(totals == last).tolist()
        random = self._rng.random
        above.sort(key=lambda position: (-totals[position], random()))
        return [*above, *self._rng.sample(tied, count - len(above))]
