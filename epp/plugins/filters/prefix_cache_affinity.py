"""Keep a conversation on the endpoints that hold nearly all of its prompt, unless they are overloaded.

The sticky endpoints are those that hold at least ``affinityThreshold`` of the prompt's blocks. Everybody is
kept when there are none, and when waiting for the best of them would cost more than it saves: when the
estimated time to first token of the best sticky endpoint exceeds that of the best other one by more than
``maxTTFTPenaltyMs``. The estimate is the tokens in flight to an endpoint over ``peakPrefillThroughput``.
With ``explorationProbability`` everybody is kept at random, so that hot prefixes spread.

A prefix that has spread stays on all its endpoints, however little it is asked for, unless
``consolidateWithinMs`` says how much waiting it is worth to go back to one: of the sticky endpoints that are
at most so much slower than the best of them, only the one that holds most is kept, the first in the pool
among equals. The caches of the others are then free for other prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataplane.errors import ConfigError
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import INFLIGHT_LOAD, PREFIX_MATCH, aligned, produced_by
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest

DEFAULT_THRESHOLD: Final = 0.8


class PrefixCacheAffinityParams(PluginParams, frozen=True):
    """Parameters of prefix-cache-affinity-filter."""

    affinity_threshold: Annotated[float, msgspec.Meta(le=1)] | None = None
    """Share of the prompt's blocks from which an endpoint is sticky; absent = 0.8. 0 or less = off."""
    stickiness_threshold: Annotated[float, msgspec.Meta(le=1)] | None = None
    """Another name of `affinityThreshold`, accepted with a warning."""
    exploration_probability: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of requests for which everybody is kept."""
    max_ttft_penalty_ms: Annotated[float, msgspec.Meta(ge=0)] = msgspec.field(
        default=18_000.0, name="maxTTFTPenaltyMs"
    )
    """Milliseconds by which the best sticky endpoint may be slower than the best other one; 0 = no limit."""
    consolidate_within_ms: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Milliseconds by which the one sticky endpoint that is kept may be slower than the best; 0 = all are."""
    ttft_source: Literal["prefillThroughput", "latencyPredictor"] = "prefillThroughput"
    """Where the times come from; `latencyPredictor` is not in this build."""
    peak_prefill_throughput: Annotated[float, msgspec.Meta(gt=0)] = 15_928.0
    """Prompt tokens an endpoint computes per second."""
    prefix_match_info_producer_name: str = ""
    """Name of the producer of matches; empty = approx-prefix-cache-producer."""
    in_flight_load_producer_name: str = ""
    """Name of the producer of tokens in flight; empty = inflight-load-producer."""
    latency_prediction_info_producer_name: str = ""
    """Producer of predicted times; without effect on `prefillThroughput`."""

    def __post_init__(self) -> None:
        if self.ttft_source == "latencyPredictor":
            raise ConfigError(
                "latencyPredictor is not in this build; use prefillThroughput, the default", path="ttftSource"
            )
        if self.affinity_threshold is not None and self.stickiness_threshold is not None:
            raise ConfigError(
                "is another name of affinityThreshold; remove one of them", path="stickinessThreshold"
            )


class PrefixCacheAffinityFilter:
    """Filters by matched prefix, within a limit of extra waiting."""

    info: ClassVar = PluginInfo("prefix-cache-affinity-filter", PrefixCacheAffinityParams)

    def __init__(self, name: TypedName, params: PrefixCacheAffinityParams, handle: Handle) -> None:
        self.name = name
        self._rng = handle.rng
        self._match = produced_by(PREFIX_MATCH, params.prefix_match_info_producer_name)
        self._load = produced_by(INFLIGHT_LOAD, params.in_flight_load_producer_name)
        given = params.affinity_threshold
        if given is None:
            given = params.stickiness_threshold
        self._threshold = DEFAULT_THRESHOLD if given is None else given
        self._exploration = params.exploration_probability
        self._max_penalty_ms = params.max_ttft_penalty_ms
        self._consolidate_ms = params.consolidate_within_ms
        self._ms_per_token = 1000.0 / params.peak_prefill_throughput
        self.consumes: Sequence[DataKey[Any]] = (
            (self._match, self._load) if self._max_penalty_ms or self._consolidate_ms else (self._match,)
        )
        self.warnings = (
            ["stickinessThreshold is accepted for affinityThreshold; use that name"]
            if params.stickiness_threshold is not None
            else []
        )
        if params.latency_prediction_info_producer_name:
            self.warnings.append(
                "latencyPredictionInfoProducerName has no effect: times come from prefillThroughput"
            )

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """The sticky endpoints, or everybody."""
        match = request.get(self._match)
        if self._threshold <= 0 or len(candidates) < 2 or match is None or not match.total:
            return candidates
        share = aligned(match.matched, match.candidates, candidates) / match.total
        sticky = share >= self._threshold
        count = np.count_nonzero(sticky)
        if count == 0 or (count == len(candidates) and not self._consolidate_ms):
            return candidates
        if self._exploration and self._rng.random() < self._exploration:
            return candidates
        if (
            self._max_penalty_ms
            and count < len(candidates)
            and self._penalty_ms(request, candidates, sticky) > self._max_penalty_ms
        ):
            return candidates
        if self._consolidate_ms and count > 1:
            sticky = self._home(request, candidates, np.where(sticky, share, -1.0))
        return candidates.where(sticky)

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """How little of the prompt it holds, or that another one holds it as well."""
        match = request.get(self._match)
        held = 0.0 if match is None else match.held_tokens(endpoint) / (match.total * match.block_size)
        if held >= self._threshold:
            return f"holds {held:.0%} of the prompt, which is gathered on one endpoint while it can carry it"
        return f"holds {held:.0%} of the prompt, others at least {self._threshold:.0%}"

    def _penalty_ms(
        self, request: InferenceRequest, candidates: Candidates, sticky: NDArray[np.bool_]
    ) -> float:
        """How much later the best sticky endpoint answers than the best other one; negative = earlier."""
        load = request.get(self._load)
        if load is None:
            return 0.0
        tokens = aligned(load.tokens, load.candidates, candidates)
        extra: float = tokens[sticky].min() - tokens[~sticky].min()
        return extra * self._ms_per_token

    def _home(
        self, request: InferenceRequest, candidates: Candidates, share: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """The one sticky endpoint to keep, by shares of which those that are not sticky are negative.

        All of them without knowledge of the load.
        """
        sticky = share >= 0
        load = request.get(self._load)
        if load is None:
            return sticky
        wait_ms = aligned(load.tokens, load.candidates, candidates) * self._ms_per_token
        near = sticky & (wait_ms <= wait_ms[sticky].min() + self._consolidate_ms)
        kept = np.zeros(len(candidates), bool)
        kept[np.where(near, share, -1.0).argmax()] = True
        return kept
