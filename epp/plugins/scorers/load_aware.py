"""Prefer endpoints whose queue is far from a fixed threshold.

Unlike queue-scorer the scale is absolute: an empty queue scores 0.5, a queue of ``threshold`` or more
requests 0.0, so the scorer says little while all queues are short and leaves the choice to others.
Depth includes requests sent since the last scrape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory

IDLE_SCORE = 0.5


class LoadAwareParams(PluginParams, frozen=True):
    """Parameters of load-aware-scorer."""

    threshold: Annotated[int, msgspec.Meta(gt=0, le=1_000_000)] = 128
    """Queue depth, in requests, from which the score is 0."""


class LoadAwareScorer:
    """Scores by waiting requests on an absolute scale from 0 to 0.5."""

    info: ClassVar = PluginInfo("load-aware-scorer", LoadAwareParams)
    category: ClassVar = ScorerCategory.DISTRIBUTION
    consumes: Sequence[DataKey[Any]] = (ENGINE_METRICS,)

    def __init__(self, name: TypedName, params: LoadAwareParams, handle: Handle) -> None:
        self.name = name
        self._threshold = float(params.threshold)

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """0.5 for an empty queue, 0.0 from the threshold on."""
        depth = np.minimum(candidates.queue_depth(), self._threshold)
        return IDLE_SCORE * (1.0 - depth / self._threshold)
