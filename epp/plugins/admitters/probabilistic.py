"""Deny sheddable requests the more often, the fuller the pool is.

Only requests of negative priority are ever denied. An endpoint is as full as the larger of its queue against
``queueDepthThreshold`` and its KV-cache utilisation against ``kvCacheUtilThreshold``; the pool is as full as
its candidates on average. A request is denied with probability min(saturation ** power x k, 1): next to never
in an idle pool, always long before the thresholds are reached. Denials are 429.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.endpoint import Candidates
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest


class ProbabilisticParams(PluginParams, frozen=True):
    """Parameters of probabilistic-admitter."""

    queue_depth_threshold: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    """Waiting requests at which an endpoint counts as full."""
    kv_cache_util_threshold: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.8
    """KV-cache utilisation, 0 to 1, at which an endpoint counts as full."""
    power: Annotated[float, msgspec.Meta(gt=0, le=100)] = 5.0
    """How sharply denials set in as the pool fills."""
    k: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 300.0
    """Factor of the probability; 0 = deny nothing."""


class ProbabilisticAdmitter:
    """Sheds requests of negative priority at random."""

    info: ClassVar = PluginInfo("probabilistic-admitter", ProbabilisticParams)
    consumes: Sequence[DataKey[Any]] = (ENGINE_METRICS,)

    def __init__(self, name: TypedName, params: ProbabilisticParams, handle: Handle) -> None:
        self.name = name
        self._params = params
        self._random = handle.rng.random

    def admit(self, request: InferenceRequest, candidates: Candidates) -> str | None:
        """Deny with the probability that the pool's saturation asks for."""
        if request.priority >= 0 or not len(candidates):
            return None
        saturation = self.saturation(candidates)
        probability = self._probability(saturation)
        if probability <= 0 or self._random() >= probability:
            return None
        return f"the pool is {saturation:.0%} full, and requests of priority {request.priority} are shed"

    def saturation(self, candidates: Candidates) -> float:
        """How full the candidates are on average; 1.0 = at the thresholds."""
        params = self._params
        queue = candidates.queue_depth() / params.queue_depth_threshold
        cache = candidates.kv_usage() / params.kv_cache_util_threshold
        return float(np.maximum(queue, cache).mean())

    def _probability(self, saturation: float) -> float:
        """Capped before the power is taken: a full pool must not overflow it."""
        probability: float = min(saturation, 1e3) ** self._params.power * self._params.k
        return min(probability, 1.0)
