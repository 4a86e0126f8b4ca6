"""How full the pool is, by what the model servers report.

An endpoint is as full as the larger of its queue against ``queueDepthThreshold`` and its KV-cache utilisation
against ``kvCacheUtilThreshold``, the pool as full as its endpoints on average. Queues include the requests
sent since the last report, so that a burst within one scrape interval is seen. An endpoint that never
reported, or whose report is too old, counts as full.

As a filter it keeps the endpoints with fresh reports below both thresholds; everybody when there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.plugins.durations import positive_seconds

STALE: Final = 1.0
"""Saturation of an endpoint of which nothing recent is known."""
ROUNDS: Final = 3
"""Of an endpoint's own intervals between reports, how many may pass before one is too old."""


class UtilizationDetectorParams(PluginParams, frozen=True):
    """Parameters of utilization-detector."""

    queue_depth_threshold: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 5.0
    """Waiting requests at which an endpoint counts as full."""
    kv_cache_util_threshold: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.8
    """KV-cache utilisation, 0 to 1, at which an endpoint counts as full."""
    metrics_staleness_threshold: str = "200ms"
    """Age at which a report is too old; never less than three of the endpoint's own rounds."""
    headroom: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    """Share by which the filter lets endpoints go beyond the thresholds."""

    def __post_init__(self) -> None:
        positive_seconds(self.metrics_staleness_threshold, "metricsStalenessThreshold")


class UtilizationDetector:
    """Detects saturation by queues and KV caches."""

    info: ClassVar = PluginInfo("utilization-detector", UtilizationDetectorParams)
    consumes: Sequence[DataKey[Any]] = (ENGINE_METRICS,)

    def __init__(self, name: TypedName, params: UtilizationDetectorParams, handle: Handle) -> None:
        self.name = name
        self._clock = handle.clock
        self._queue = params.queue_depth_threshold
        self._cache = params.kv_cache_util_threshold
        self._staleness = positive_seconds(params.metrics_staleness_threshold, "metricsStalenessThreshold")
        self._queue_limit = self._queue * (1 + params.headroom)
        self._cache_limit = self._cache * (1 + params.headroom)

    def saturation_of(self, candidates: Candidates) -> float:
        """Mean over the candidates of the fuller of queue and cache."""
        if not len(candidates):
            return 1.0
        table, slots = candidates.table, candidates.slots
        queue = (table.waiting[slots] + table.unseen[slots]) / self._queue
        fullest = np.maximum(queue, table.kv_usage[slots] / self._cache)
        return float(np.where(self._is_fresh(candidates), fullest, STALE).mean())

    def stale_among(self, candidates: Candidates) -> int:
        """Candidates without a recent report."""
        return len(candidates) - int(self._is_fresh(candidates).sum())

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """Those with a recent report and room; all of them if that is nobody."""
        table, slots = candidates.table, candidates.slots
        keep = (
            self._is_fresh(candidates)
            & (table.waiting[slots] + table.unseen[slots] < self._queue_limit)
            & (table.kv_usage[slots] < self._cache_limit)
        )
        return candidates.where(keep) if keep.any() else candidates

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """Why an endpoint is left out."""
        alone = candidates.where(candidates.slots == endpoint.slot)
        if self.stale_among(alone):
            return "its last report is too old"
        table, slot = candidates.table, endpoint.slot
        queue, cache = float(table.waiting[slot] + table.unseen[slot]), float(table.kv_usage[slot])
        figures = (("queue", queue, self._queue_limit), ("KV cache", cache, self._cache_limit))
        return ", ".join(f"{name} {value:g} >= {limit:g}" for name, value, limit in figures if value >= limit)

    def _is_fresh(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Whose report is there and young enough: fresh for the table, and not older than asked for.

        A server that takes long to answer is not asked more often than it can; its report may be as old as
        a few of its own rounds, or one slow page would close the pool.
        """
        table, slots = candidates.table, candidates.slots
        allowed = np.maximum(self._staleness, table.round_s[slots] * ROUNDS)
        fresh: NDArray[np.bool_] = table.fresh[slots] & (self._clock() - table.updated_at[slots] <= allowed)
        return fresh
