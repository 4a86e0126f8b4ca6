"""``random-picker``: any model by lot, whatever its score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage


class RandomPicker:
    """Picks by lot."""

    info: ClassVar = PluginInfo("random-picker", PluginParams)

    def __init__(self, name: TypedName, _: PluginParams, handle: Handle) -> None:
        self.name = name
        self._rng = handle.rng

    def pick_model(self, _: RequestMessage, totals: Sequence[float]) -> int:
        """Its position."""
        return self._rng.randrange(len(totals))
