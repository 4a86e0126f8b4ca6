"""``max-score-picker``: the model of the highest total score; among equals, one by lot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage


class MaxScorePicker:
    """Picks by score."""

    info: ClassVar = PluginInfo("max-score-picker", PluginParams)

    def __init__(self, name: TypedName, _: PluginParams, handle: Handle) -> None:
        self.name = name
        self._rng = handle.rng

    def pick_model(self, _: RequestMessage, totals: Sequence[float]) -> int:
        """Its position."""
        best = max(totals)
        ties = [at for at, total in enumerate(totals) if total == best]
        return ties[0] if len(ties) == 1 else self._rng.choice(ties)
