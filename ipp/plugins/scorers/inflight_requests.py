"""``inflight-requests-scorer``: prefers models with fewer requests under way through this processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ModelLoads, ServedModel


class InflightRequestsScorer:
    """Needs somebody who counts them."""

    info: ClassVar = PluginInfo("inflight-requests-scorer", PluginParams)
    needs: ClassVar = (ModelLoads,)

    def __init__(self, name: TypedName, _: PluginParams, handle: Handle) -> None:
        self.name = name
        self._loads = handle.data.table(ModelLoads)

    def score_models(self, _: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """0 for the most, 1 for the fewest, in proportion between; 1 for all when all have as many."""
        counts = [self._loads.requests(model.name) for model in candidates]
        most, fewest = max(counts), min(counts)
        if most == fewest:
            return [1.0] * len(counts)
        return [(most - count) / (most - fewest) for count in counts]
