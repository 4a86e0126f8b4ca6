"""Send prompts to the endpoints meant for their length; a filter and a scorer in one.

A label of the endpoint says which prompts it is meant for, as ``min-max`` in tokens. The filter, off by
default, leaves out endpoints whose range does not hold the prompt; the scorer prefers narrow ranges that hold
it, and among the others the nearest. Endpoints without the label take any prompt. One whose label is no range
takes none: its score is 0. A prompt of unknown length narrows nothing and prefers nobody.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from dataplane.errors import ConfigError
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import TOKENIZED_PROMPT, TokenizedPrompt
from epp.interfaces.endpoint import Candidates, Endpoint, EndpointSpec, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory
from epp.plugins.endpoint_facts import EndpointFacts, shown_label

RANGE: Final = re.compile(r"([0-9]{1,12})-([0-9]{1,12})")

UNLABELLED_SCORE: Final = 0.5
IN_RANGE_FLOOR: Final = 0.3
"""Scores of endpoints in range are above it, those of the others are at most it."""
NARROWNESS: Final = 0.7
"""Share of the rest that depends on the width of the range; what remains depends on the room above."""
WIDTH_SCALE: Final = 10_000.0
"""Tokens of width that halve the reward of narrowness."""
DISTANCE_SCALE: Final = 1_000.0
"""Tokens outside the range that halve the score."""

TOKEN_BYTES: Final = 4

_Facts = tuple[float, float, float]
"""Least and most tokens, and the score that is given in their place (NaN: they decide)."""


class ContextLengthParams(PluginParams, frozen=True):
    """Parameters of context-length-aware."""

    label: str = "llm-d.ai/context-length-range"
    """Label key of the range."""
    enable_filtering: bool = False
    """Whether endpoints out of range are left out, and not only scored lower."""

    def __post_init__(self) -> None:
        if not self.label:
            raise ConfigError("must not be empty", path="label")


class ContextLengthAware:
    """Filters and scores by the length of the prompt."""

    info: ClassVar = PluginInfo("context-length-aware", ContextLengthParams)
    category: ClassVar = ScorerCategory.AFFINITY
    bounded: ClassVar = True
    consumes: Sequence[DataKey[Any]] = (TOKENIZED_PROMPT,)

    def __init__(self, name: TypedName, params: ContextLengthParams, handle: Handle) -> None:
        self.name = name
        self._filters = params.enable_filtering
        self._label = params.label
        self._ranges = EndpointFacts(lambda spec: _facts(spec, params.label), width=3)

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """The endpoints in whose range the prompt is, and those without a range."""
        prompt = request.get(TOKENIZED_PROMPT)
        if not self._filters or prompt is None:
            return candidates
        length = _length(prompt)
        least, most, given = self._ranges.of(candidates)
        return candidates.where(
            np.where(np.isnan(given), (least <= length) & (length <= most), given == UNLABELLED_SCORE)
        )

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """The range, and the length that is not in it."""
        prompt = request.get(TOKENIZED_PROMPT)
        length = 0 if prompt is None else _length(prompt)
        return f"{shown_label(endpoint.spec, self._label)}, the prompt has {length} tokens"

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """Above 0.3 in range, more in narrow ranges; at most 0.3 out of range, less with the distance."""
        prompt = request.get(TOKENIZED_PROMPT)
        if prompt is None:
            return np.full(len(candidates), UNLABELLED_SCORE)
        length = _length(prompt)
        least, most, given = self._ranges.of(candidates)
        width = most - least
        room = np.where(width > 0, most - length, 1.0) / np.where(width > 0, width, 1.0)
        fit = NARROWNESS / (1.0 + width / WIDTH_SCALE) + (1.0 - NARROWNESS) * room
        fit = np.where(width > 0, fit, 1.0)
        distance = np.maximum(np.maximum(least - length, length - most), 0.0)
        inside = IN_RANGE_FLOOR + (1.0 - IN_RANGE_FLOOR) * fit
        outside = IN_RANGE_FLOOR / (1.0 + distance / DISTANCE_SCALE)
        return np.where(np.isnan(given), np.where(distance > 0, outside, inside), given)


def _facts(spec: EndpointSpec, label: str) -> _Facts:
    text = spec.labels.get(label)
    if text is None:
        return 0.0, 0.0, UNLABELLED_SCORE
    found = RANGE.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        return 0.0, 0.0, 0.0
    return float(found[1]), float(found[2]), np.nan


def _length(prompt: TokenizedPrompt) -> int:
    """Tokens of the prompt; of a batched one the longest, since each is a context of its own."""
    if prompt.batch is None:
        return prompt.tokens
    return max((len(data) // TOKEN_BYTES for data in prompt.batch), default=0)
