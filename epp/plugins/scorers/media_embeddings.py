"""Prefer endpoints that have encoded the request's images, clips and videos before.

The score is the share of the media, by the tokens they stand for, that an endpoint holds; a request without
media prefers nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import ENCODER_MATCH, aligned, produced_by
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory


class MediaEmbeddingsScorerParams(PluginParams, frozen=True):
    """Parameters of mm-embeddings-cache-scorer."""

    producer_name: str = ""
    """Name of the producer to read; empty = mm-embeddings-cache-producer."""


class MediaEmbeddingsScorer:
    """Scores by media held."""

    info: ClassVar = PluginInfo("mm-embeddings-cache-scorer", MediaEmbeddingsScorerParams)
    category: ClassVar = ScorerCategory.AFFINITY
    bounded: ClassVar = True

    def __init__(self, name: TypedName, params: MediaEmbeddingsScorerParams, handle: Handle) -> None:
        self.name = name
        self._match = produced_by(ENCODER_MATCH, params.producer_name)
        self.consumes: Sequence[DataKey[Any]] = (self._match,)

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """Held over all, 0 without media."""
        match = request.get(self._match)
        if match is None:
            return np.zeros(len(candidates))
        scores: Floats = aligned(match.matched, match.candidates, candidates) / match.total
        return scores

    def score_few(self, request: InferenceRequest, candidates: Candidates) -> list[float]:
        """The same as a list."""
        if request.get(self._match) is None:
            return [0.0] * len(candidates)
        return [float(score) for score in self.score(request, candidates)]
