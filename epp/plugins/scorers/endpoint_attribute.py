"""Prefer endpoints by a number that the data layer left on them.

The number is placed on a scale from a fixed smallest to a fixed largest value, or from the smallest to the
largest among the candidates; the score is linear in between and 0 or 1 beyond. An endpoint without the number
scores 0. On the scale of the candidates equal numbers score 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from dataplane.errors import ConfigError
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory
from epp.plugins.endpoint_numbers import number_key, numbers_of


class FixedRange(PluginParams, frozen=True):
    """A scale with fixed ends."""

    min: float
    """Smallest value of the scale."""
    max: float
    """Largest value of the scale."""

    def __post_init__(self) -> None:
        if self.min >= self.max:
            raise ConfigError(f"must be above min, which is {self.min:g}", path="max")


class AdaptiveRange(PluginParams, frozen=True):
    """A scale from the smallest to the largest value among the candidates."""


class Normalization(PluginParams, frozen=True):
    """One of the two scales."""

    fixed_range: FixedRange | None = None
    """Fixed ends: `min` and `max`."""
    adaptive_range: AdaptiveRange | None = None
    """The candidates' own ends: `{}`."""

    def __post_init__(self) -> None:
        if (self.fixed_range is None) == (self.adaptive_range is None):
            raise ConfigError("give one of fixedRange and adaptiveRange")


class ScorerAlgorithm(PluginParams, frozen=True):
    """From number to score."""

    type: Literal["linear_lower_is_better", "linear_higher_is_better"]
    """Which end of the scale scores 1."""
    normalization: Normalization
    """The scale: `fixedRange` or `adaptiveRange`."""


class EndpointAttributeScorerParams(PluginParams, frozen=True):
    """Parameters of endpoint-attribute-scorer."""

    attribute_key: str
    """Name of the attribute."""
    algorithm: ScorerAlgorithm
    """How it becomes a score: `type` and `normalization`."""
    producer: str | None = None
    """Instance that leaves the attribute; empty = whichever does."""

    def __post_init__(self) -> None:
        number_key(self.attribute_key, self.producer, "attributeKey")


class EndpointAttributeScorer:
    """Scores by one number per endpoint."""

    info: ClassVar = PluginInfo("endpoint-attribute-scorer", EndpointAttributeScorerParams, Stability.ALPHA)
    category: ClassVar = ScorerCategory.DISTRIBUTION

    def __init__(self, name: TypedName, params: EndpointAttributeScorerParams, handle: Handle) -> None:
        self.name = name
        self._key = number_key(params.attribute_key, params.producer, "attributeKey")
        self._range = params.algorithm.normalization.fixed_range
        self._lower_is_better = params.algorithm.type == "linear_lower_is_better"
        self.consumes: Sequence[DataKey[Any]] = (self._key,)

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """Linear from 0 to 1 along the scale; 0 for those without the number."""
        numbers = numbers_of(self._key, candidates)
        missing = ~np.isfinite(numbers)
        if missing.all():
            return np.zeros(len(candidates))
        numbers = np.where(missing, np.nan, numbers)
        if self._range is not None:
            low, high = self._range.min, self._range.max
        else:
            low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        if low == high:
            return np.where(missing, 0.0, 1.0)
        scale = 1.0 if math.isfinite(high - low) else 0.5
        share = (np.clip(numbers, low, high) * scale - low * scale) / (high * scale - low * scale)
        return np.where(missing, 0.0, 1.0 - share if self._lower_is_better else share)
