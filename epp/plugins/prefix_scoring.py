"""Preferring endpoints that already hold the beginning of the prompt in their KV cache.

The score is the matched share of the prompt's blocks; with ``matchLengthWeight`` w part of it is taken by the
matched length itself, so that long matches count more than short ones:
(1 - w) x matched / total + w x min(1, matched tokens / ``matchLengthScaleTokens``) squared.
Without match information, or for a prompt without blocks, every score is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from dataplane.plugin.base import DataKey, PluginParams, TypedName
from epp.interfaces.attributes import PREFIX_MATCH, aligned, produced_by
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory


class PrefixCacheParams(PluginParams, frozen=True):
    """Parameters of prefix-cache-scorer and its multi-cluster variant."""

    prefix_match_info_producer_name: str = ""
    """Name of the producer to read; empty = approx-prefix-cache-producer."""
    match_length_weight: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of the score that depends on the matched length instead of the matched share."""
    match_length_scale_tokens: Annotated[int, msgspec.Meta(gt=0)] = 8192
    """Matched tokens from which that share is reached in full."""


class PrefixScoring:
    """Scores by matched prefix. Base of scorers."""

    category: ClassVar = ScorerCategory.AFFINITY
    bounded: ClassVar = True

    def __init__(self, name: TypedName, params: PrefixCacheParams, handle: Handle) -> None:
        self.name = name
        self._match = produced_by(PREFIX_MATCH, params.prefix_match_info_producer_name)
        self._length_weight = params.match_length_weight
        self._length_scale = float(params.match_length_scale_tokens)
        self.consumes: Sequence[DataKey[Any]] = (self._match,)

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """Matched share of the prompt, 0.0 to 1.0."""
        match = request.get(self._match)
        if match is None or not match.total:
            return np.zeros(len(candidates))
        matched = aligned(match.matched, match.candidates, candidates)
        share = matched / match.total
        weight = self._length_weight
        if not weight:
            return share
        length = np.minimum(matched * (match.block_size / self._length_scale), 1.0)
        return (1.0 - weight) * share + weight * (length * length)

    def score_few(self, request: InferenceRequest, candidates: Candidates) -> list[float]:
        """The same without numpy."""
        match = request.get(self._match)
        if match is None or not match.total:
            return [0.0] * len(candidates)
        if self._length_weight or match.candidates is not candidates:
            return list(map(float, self.score(request, candidates)))
        total = match.total
        return [matched / total for matched in match.matched.tolist()]
