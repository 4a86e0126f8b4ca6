"""Prefer the endpoints whose cluster has more room in its KV caches.

The score is 1 minus the mean utilization of the pool that an endpoint stands for; 0 where that is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import POOL_KV_CACHE_UTILIZATION
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory
from epp.plugins.endpoint_numbers import numbers_of


class MulticlusterKvCacheUtilizationScorer:
    """Scores by KV-cache utilization of pools."""

    info: ClassVar = PluginInfo(
        "multicluster-kv-cache-utilization-scorer", PluginParams, stability=Stability.ALPHA
    )
    category: ClassVar = ScorerCategory.DISTRIBUTION
    bounded: ClassVar = True
    consumes: Sequence[DataKey[Any]] = (POOL_KV_CACHE_UTILIZATION,)

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """The share of the caches that is free."""
        usage = numbers_of(POOL_KV_CACHE_UTILIZATION, candidates)
        scores: Floats = np.where(np.isnan(usage), 0.0, 1.0 - np.clip(usage, 0.0, 1.0))
        return scores
