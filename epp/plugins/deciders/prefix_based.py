"""Prefill on a prefill worker when enough of the prompt is new to the endpoint that would decode it.

What an endpoint holds is known in whole blocks. A prompt shorter than a block matches nothing and is new as a
whole: its length alone decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import PREFIX_MATCH, TOKENIZED_PROMPT
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest

Count = Annotated[int, msgspec.Meta(ge=0)]


class PrefixBasedDeciderParams(PluginParams, frozen=True):
    """Parameters of prefix-based-pd-decider."""

    non_cached_tokens: Count = 0
    """Tokens that must be new to the endpoint; 0 = never a stage of its own."""
    prompt_tokens: Count = 0
    """Tokens the prompt must have altogether; 0 = any number."""


class PrefixBasedDecider:
    """Compares the new part of a prompt with a threshold."""

    info: ClassVar = PluginInfo("prefix-based-pd-decider", PrefixBasedDeciderParams)
    consumes: Sequence[DataKey[Any]] = (TOKENIZED_PROMPT, PREFIX_MATCH)

    def __init__(self, name: TypedName, params: PrefixBasedDeciderParams, handle: Handle) -> None:
        self.name = name
        never = "nonCachedTokens is 0, so no request is ever disaggregated"
        self.warnings = [] if params.non_cached_tokens else [never]
        self._new = params.non_cached_tokens
        self._least = max(params.prompt_tokens, params.non_cached_tokens)

    def wants_stage(self, request: InferenceRequest, endpoint: Endpoint | None) -> bool:
        """Whether prompt and new part are long enough; without an endpoint everything is new."""
        prompt = request.get(TOKENIZED_PROMPT)
        if not self._new or prompt is None or prompt.tokens < self._least:
            return False
        match = request.get(PREFIX_MATCH)
        held = 0 if match is None or endpoint is None else match.held_tokens(endpoint)
        return prompt.tokens - held >= self._new
