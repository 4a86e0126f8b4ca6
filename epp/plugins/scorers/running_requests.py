"""Prefer endpoints that run fewer requests.

Counts what the server reported at its last scrape, not what was sent to it since; for that, use
active-request-scorer. The smallest count scores 1.0; others fall linearly over the spread between smallest
and largest, but over at least ``minSpread`` requests. An endpoint whose metrics grow stale gradually counts
as the busiest fresh one.
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
from epp.plugins.normalization import fewer_is_better


class RunningRequestsParams(PluginParams, frozen=True):
    """Parameters of running-requests-size-scorer."""

    min_spread: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 5.0
    """Smallest spread of running requests that is worth the whole score. 0 = plain min-max."""


class RunningRequestsScorer:
    """Scores by running requests."""

    info: ClassVar = PluginInfo("running-requests-size-scorer", RunningRequestsParams)
    category: ClassVar = ScorerCategory.DISTRIBUTION
    bounded: ClassVar = True
    consumes: Sequence[DataKey[Any]] = (ENGINE_METRICS,)

    def __init__(self, name: TypedName, params: RunningRequestsParams, handle: Handle) -> None:
        self.name = name
        self._min_spread = params.min_spread

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """1.0 for the fewest running requests, less for more."""
        return fewer_is_better(candidates.running(), self._min_spread)
