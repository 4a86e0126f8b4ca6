"""Prefer endpoints that are near to where the request's earlier stage runs.

The same host scores 1, the same rack 0.2, the same zone 0.05, the same region 0.02, anything else 0: what
matters between two stages is a network's bandwidth, and it falls steeply. Without an earlier stage, or when
its place is not known, everybody scores 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import TOPOLOGY
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory
from epp.plugins.nearness import Nearness

SCORES: Final = np.array([1.0, 0.2, 0.05, 0.02, 0.0])
"""By nearness: host, rack, zone, region, nothing in common."""


class TopologyAffinityScorerParams(PluginParams, frozen=True):
    """Parameters of topology-affinity-scorer."""

    topology_producer_name: str = ""
    """Instance that leaves the topology; empty = whichever does, else topology-extractor."""


class TopologyAffinityScorer:
    """Scores by nearness."""

    info: ClassVar = PluginInfo("topology-affinity-scorer", TopologyAffinityScorerParams, Stability.ALPHA)
    category: ClassVar = ScorerCategory.AFFINITY
    bounded: ClassVar = True

    def __init__(self, name: TypedName, params: TopologyAffinityScorerParams, handle: Handle) -> None:
        self.name = name
        key = TOPOLOGY.by(params.topology_producer_name)
        self._nearness = Nearness(key)
        self.consumes: Sequence[DataKey[Any]] = (key,)

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """The score of each candidate's nearness."""
        nearest = self._nearness.of(request, candidates)
        if nearest is None:
            return np.zeros(len(candidates))
        scores: Floats = SCORES[nearest]
        return scores
