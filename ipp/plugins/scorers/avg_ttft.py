"""``avg-ttft-scorer``: prefers the model whose answers begin soonest on average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel
from ipp.plugins.ttft_scoring import shortest_first
from ipp.speeds import ModelSpeeds


class AvgTtftScorer:
    """Knows nothing of load: what is under way shows only in the answers that follow."""

    info: ClassVar = PluginInfo("avg-ttft-scorer", PluginParams)
    needs: ClassVar = (ModelSpeeds,)

    def __init__(self, name: TypedName, _: PluginParams, handle: Handle) -> None:
        self.name = name
        self._speeds = handle.data.table(ModelSpeeds)
        self._speeds.wants_first_byte = True

    def score_models(self, _: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """1 for the shortest average, 0 for the longest; a model that has not answered yet has none."""
        speeds = self._speeds.by_model
        found = [speeds.get(model.name) for model in candidates]
        return shortest_first([(speed.average_ttft or 0.0) if speed else 0.0 for speed in found])
