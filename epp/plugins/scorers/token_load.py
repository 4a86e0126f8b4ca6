"""Prefer endpoints that have fewer tokens to compute once this request is there.

Load is counted in tokens in flight, as kept by inflight-load-producer, plus the part of this request's prompt
that the endpoint does not hold in its KV cache. The scale is absolute: no tokens score 1.0,
``queueThresholdTokens`` or more score 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import INFLIGHT_LOAD, PREFIX_MATCH, TOKENIZED_PROMPT, aligned, produced_by
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory


class TokenLoadParams(PluginParams, frozen=True):
    """Parameters of token-load-scorer."""

    queue_threshold_tokens: Annotated[int, msgspec.Meta(gt=0)] = 4_194_304
    """Tokens from which the score is 0."""
    in_flight_load_producer_name: str = ""
    """Name of the producer to read; empty = inflight-load-producer."""


class TokenLoadScorer:
    """Scores by tokens in flight on an absolute scale."""

    info: ClassVar = PluginInfo("token-load-scorer", TokenLoadParams)
    category: ClassVar = ScorerCategory.DISTRIBUTION
    bounded: ClassVar = True
    may_consume: Sequence[DataKey[Any]] = (PREFIX_MATCH,)

    def __init__(self, name: TypedName, params: TokenLoadParams, handle: Handle) -> None:
        self.name = name
        self._load = produced_by(INFLIGHT_LOAD, params.in_flight_load_producer_name)
        self._threshold = float(params.queue_threshold_tokens)
        self.consumes: Sequence[DataKey[Any]] = (self._load, TOKENIZED_PROMPT)

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """1.0 for nothing to do, 0.0 from the threshold on."""
        load = request.get(self._load)
        if load is None:
            return np.zeros(len(candidates))
        tokens = aligned(load.tokens, load.candidates, candidates) + _uncached(request, candidates)
        return 1.0 - np.minimum(tokens, self._threshold) / self._threshold


def _uncached(request: InferenceRequest, candidates: Candidates) -> Floats | float:
    """Tokens of the prompt that each candidate would have to compute."""
    prompt = request.get(TOKENIZED_PROMPT)
    if prompt is None:
        return 0.0
    match = request.get(PREFIX_MATCH)
    if match is None:
        return float(prompt.tokens)
    held = aligned(match.matched, match.candidates, candidates) * match.block_size
    return np.maximum(prompt.tokens - held, 0.0)
