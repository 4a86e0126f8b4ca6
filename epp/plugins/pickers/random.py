"""Pick endpoints uniformly at random, whatever their scores: a baseline, and a way to spread blindly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest


class RandomPickerParams(PluginParams, frozen=True):
    """Parameters of random-picker."""

    max_num_of_endpoints: int = 1
    """Endpoints to pick; less than 1 counts as 1."""


class RandomPicker:
    """Picks by lot."""

    info: ClassVar = PluginInfo("random-picker", RandomPickerParams)

    def __init__(self, name: TypedName, params: RandomPickerParams, handle: Handle) -> None:
        self.name = name
        self._count = max(1, params.max_num_of_endpoints)
        self._rng = handle.rng

    def pick(self, request: InferenceRequest, candidates: Candidates, totals: Floats) -> Sequence[int]:
        """Distinct positions in random order."""
        if self._count == 1:
            return (int(self._rng.random() * totals.size),)
        return self._rng.sample(range(totals.size), min(self._count, totals.size))
