"""``weighted-random-picker``: a model by lot, with a chance in proportion to its total score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage


class WeightedRandomPicker:
    """A score of 0 is no chance, unless all scores are 0: then all have the same."""

    info: ClassVar = PluginInfo("weighted-random-picker", PluginParams)

    def __init__(self, name: TypedName, _: PluginParams, handle: Handle) -> None:
        self.name = name
        self._rng = handle.rng

    def pick_model(self, _: RequestMessage, totals: Sequence[float]) -> int:
        """Its position."""
        if not any(total > 0 for total in totals):
            return self._rng.randrange(len(totals))
        return self._rng.choices(range(len(totals)), totals)[0]
