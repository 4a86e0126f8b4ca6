"""Prefer endpoints with a shorter waiting queue.

Depth is what the server reported plus the requests sent to it since, so a burst within one scrape interval
spreads. The shortest queue scores 1.0; others fall linearly over the spread between shortest and longest, but
over at least ``minSpread`` requests: with plain min-max scaling one waiting request would weigh as much as
fifty. A row without fresh metrics counts as the longest fresh queue. Equal queues score 1.0 each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory
from epp.plugins.normalization import fewer_is_better, fewer_is_better_of_few


class QueueDepthParams(PluginParams, frozen=True):
    """Parameters of queue-scorer."""

    min_spread: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 5.0
    """Smallest spread of queue depths, in requests, that is worth the whole score. 0 = plain min-max."""


class QueueDepthScorer:
    """Scores by waiting requests."""

    info: ClassVar = PluginInfo("queue-scorer", QueueDepthParams)
    category: ClassVar = ScorerCategory.DISTRIBUTION
    bounded: ClassVar = True
    consumes: Sequence[DataKey[Any]] = (ENGINE_METRICS,)

    def __init__(self, name: TypedName, params: QueueDepthParams, handle: Handle) -> None:
        self.name = name
        self._min_spread = params.min_spread

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """1.0 for the shortest queue, less for longer ones."""
        return fewer_is_better(candidates.queue_depth(), self._min_spread)

    def score_few(self, request: InferenceRequest, candidates: Candidates) -> list[float]:
        """The same without numpy."""
        return fewer_is_better_of_few(candidates.few_queue_depths(), self._min_spread)
