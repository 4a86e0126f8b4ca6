"""How full the pool is, by what this picker has sent and has not seen end.

Needs no metrics, and sees a burst as it comes; what other replicas of the picker send is not seen. The pool
is as full as all requests in flight against what its endpoints may have together, or all tokens in flight
likewise; ``hybrid`` takes the fuller of the two for each endpoint, and the mean of those.

As a filter it drops the endpoints that have as much as they may: when all have, nobody is left, and the
request is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import INFLIGHT_LOAD, produced_by
from epp.interfaces.endpoint import Candidates, Endpoint, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest


class ConcurrencyDetectorParams(PluginParams, frozen=True):
    """Parameters of concurrency-detector."""

    max_concurrency: Annotated[int, msgspec.Meta(gt=0, le=1_000_000_000)] = 100
    """Requests in flight at which an endpoint counts as full."""
    headroom: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    """Share by which the filter lets endpoints go beyond that."""
    concurrency_mode: Literal["requests", "tokens", "hybrid"] = "requests"
    """What is counted."""
    max_token_concurrency: Annotated[int, msgspec.Meta(gt=0, le=1_000_000_000_000)] = 1_000_000
    """Tokens in flight at which an endpoint counts as full."""
    in_flight_load_producer_name: str = ""
    """Name of the plugin that counts tokens; empty = inflight-load-producer."""


class ConcurrencyDetector:
    """Detects saturation by requests and tokens in flight."""

    info: ClassVar = PluginInfo("concurrency-detector", ConcurrencyDetectorParams)

    def __init__(self, name: TypedName, params: ConcurrencyDetectorParams, handle: Handle) -> None:
        self.name = name
        self._mode = params.concurrency_mode
        self._requests = float(params.max_concurrency)
        self._tokens = float(params.max_token_concurrency)
        self._limit = 1 + params.headroom
        load = produced_by(INFLIGHT_LOAD, params.in_flight_load_producer_name)
        # Requests are counted by the table itself; tokens only where a plugin estimates them.
        needs_producer = self._mode != "requests" or params.in_flight_load_producer_name
        self.consumes: Sequence[DataKey[Any]] = (load,) if needs_producer else ()

    def saturation_of(self, candidates: Candidates) -> float:
        """Load in flight over capacity, both summed; with ``hybrid`` the mean of the endpoints' shares."""
        return float(self._shares(candidates).mean()) if len(candidates) else 1.0

    def stale_among(self, candidates: Candidates) -> int:
        """Always 0: the own count is never old."""
        return 0

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """Those that may have more."""
        return candidates.where(self._shares(candidates) < self._limit)

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """How full an endpoint is that is left out."""
        alone = candidates.where(candidates.slots == endpoint.slot)
        return f"{self._shares(alone)[0]:.0%} of its {self._mode} in flight"

    def _shares(self, candidates: Candidates) -> Floats:
        """Per candidate: in flight over what it may have, which is the same for all."""
        table, slots = candidates.table, candidates.slots
        requests: Floats = table.inflight[slots] / self._requests
        if self._mode == "requests":
            return requests
        tokens: Floats = table.inflight_tokens[slots] / self._tokens
        return tokens if self._mode == "tokens" else np.maximum(requests, tokens)
