"""Keep the endpoints that are near enough to where the request's earlier stage runs.

An endpoint without topology is near to nobody. When there is no earlier stage, when its place is not known
and when nobody is near enough, everybody is kept: being far costs time, being refused costs the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import TOPOLOGY
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.plugins.nearness import LEVELS, Nearness


class TopologyAffinityFilterParams(PluginParams, frozen=True):
    """Parameters of topology-affinity-filter."""

    min_affinity: Literal["host", "rack", "zone", "region"] = "host"
    """Level at which endpoints must at least be together with the earlier stage."""
    topology_producer_name: str = ""
    """Instance that leaves the topology; empty = whichever does, else topology-extractor."""


class TopologyAffinityFilter:
    """Filters by nearness."""

    info: ClassVar = PluginInfo("topology-affinity-filter", TopologyAffinityFilterParams, Stability.ALPHA)

    def __init__(self, name: TypedName, params: TopologyAffinityFilterParams, handle: Handle) -> None:
        self.name = name
        key = TOPOLOGY.by(params.topology_producer_name)
        self._nearness = Nearness(key)
        self._farthest = LEVELS.index(params.min_affinity)
        self.consumes: Sequence[DataKey[Any]] = (key,)

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """Those near enough; everybody when there is none or nearness to what is not known."""
        nearest = self._nearness.of(request, candidates)
        if nearest is None:
            return candidates
        keep = nearest <= self._farthest
        return candidates.where(keep) if keep.any() else candidates

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """What it has in common with the earlier stage."""
        nearest = self._nearness.of(request, candidates.where(candidates.slots == endpoint.slot))
        shared = (
            "nothing" if nearest is None or nearest[0] == len(LEVELS) else f"the {LEVELS[nearest[0]]} only"
        )
        return f"has {shared} in common with the earlier stage"
