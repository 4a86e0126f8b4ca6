"""Prefer endpoints to which this picker has fewer requests in flight.

Needs no metrics from the model servers, so it also works with servers that expose none; what other replicas
of the picker send is not seen. Up to ``idleThreshold`` requests an endpoint counts as idle and scores 1.0;
a busier one scores (max - count) / max x ``maxBusyScore``, where max is the largest count among the
candidates: the busiest always scores 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import INFLIGHT_LOAD, aligned, produced_by
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory


class ActiveRequestsParams(PluginParams, frozen=True):
    """Parameters of active-request-scorer."""

    idle_threshold: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Requests in flight up to which an endpoint counts as idle."""
    max_busy_score: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Scores of endpoints that are not idle stay below this."""
    in_flight_load_producer_name: str = ""
    """Name of the producer to read; empty = inflight-load-producer."""
    request_timeout: str = ""
    """Deprecated and without effect: requests in flight are counted until they end."""


class ActiveRequestsScorer:
    """Scores by requests in flight."""

    info: ClassVar = PluginInfo("active-request-scorer", ActiveRequestsParams)
    category: ClassVar = ScorerCategory.DISTRIBUTION

    def __init__(self, name: TypedName, params: ActiveRequestsParams, handle: Handle) -> None:
        self.name = name
        self._load = produced_by(INFLIGHT_LOAD, params.in_flight_load_producer_name)
        self._idle = params.idle_threshold
        self._busy_score = params.max_busy_score
        self.consumes: Sequence[DataKey[Any]] = (self._load,)
        self.warnings = ["requestTimeout is deprecated and has no effect"] if params.request_timeout else []

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """1.0 for idle endpoints, less the more is in flight; 0 for the busiest."""
        load = request.get(self._load)
        if load is None or not len(candidates):
            return np.zeros(len(candidates))
        counts = aligned(load.requests, load.candidates, candidates)
        most = np.maximum.reduce(counts)
        if most <= self._idle:
            return np.ones(counts.size)
        return np.where(counts <= self._idle, 1.0, (most - counts) * (self._busy_score / most))
