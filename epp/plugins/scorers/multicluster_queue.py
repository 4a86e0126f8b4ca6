"""Prefer the endpoints whose cluster has shorter queues.

What counts is the average of waiting requests per endpoint of the pool that an endpoint stands for. The
shortest scores 1.0; others fall linearly over the spread between shortest and longest, but over at least
``minSpread`` requests. An endpoint whose pool is not known scores 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import POOL_QUEUE_SIZE
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory
from epp.plugins.endpoint_numbers import numbers_of
from epp.plugins.normalization import fewer_is_better


class MulticlusterQueueParams(PluginParams, frozen=True):
    """Parameters of multicluster-queue-scorer."""

    min_spread: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 1.0
    """Smallest spread of queue lengths, in requests per endpoint, that is worth the whole score."""


class MulticlusterQueueScorer:
    """Scores by waiting requests of pools."""

    info: ClassVar = PluginInfo("multicluster-queue-scorer", MulticlusterQueueParams, Stability.ALPHA)
    category: ClassVar = ScorerCategory.DISTRIBUTION
    bounded: ClassVar = True
    consumes: Sequence[DataKey[Any]] = (POOL_QUEUE_SIZE,)

    def __init__(self, name: TypedName, params: MulticlusterQueueParams, handle: Handle) -> None:
        self.name = name
        self._min_spread = params.min_spread

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """1.0 for the shortest queue, less for longer ones, 0.0 where it is not known."""
        lengths = numbers_of(POOL_QUEUE_SIZE, candidates)
        known = ~np.isnan(lengths)
        scores = np.zeros(len(candidates))
        scores[known] = fewer_is_better(lengths[known], self._min_spread)
        return scores
