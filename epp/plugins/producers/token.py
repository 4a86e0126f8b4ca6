"""Publish the prompt as tokens.

The estimate backend needs no tokenizer: four bytes of text make one pseudo-token, which is about the ratio of
English text, and prompts that begin with the same text begin with the same tokens. Token arrays sent by the
client are used as they are. A prompt that is tokenised already is left alone.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from dataplane.errors import ConfigError
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import TOKENIZED_PROMPT, TokenizedPrompt
from epp.interfaces.endpoint import Candidates
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest

BYTES_PER_TOKEN: Final = 4
_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
"""By length modulo four."""


class EstimateParams(PluginParams, frozen=True):
    """The estimate backend has no settings."""


class TokenProducerParams(PluginParams, frozen=True):
    """Parameters of token-producer."""

    estimate: EstimateParams | None = None
    """Backend that packs four bytes of text into one pseudo-token. Used when no backend is named."""
    model_name: str = ""
    """Model of the `vllm` backend; without effect on `estimate`."""
    vllm: dict[str, Any] | None = None
    """Backend that asks a vLLM server to tokenise; not in this build."""
    uds_tokenizer_config: dict[str, Any] | None = None
    """Deprecated backend behind a Unix socket; not in this build."""

    def __post_init__(self) -> None:
        for field, value in (("vllm", self.vllm), ("udsTokenizerConfig", self.uds_tokenizer_config)):
            if value is not None:
                raise ConfigError(
                    "this backend is not in this build; remove it to use the `estimate` backend", path=field
                )


class TokenProducer:
    """Produces TokenizedPrompt."""

    info: ClassVar = PluginInfo("token-producer", TokenProducerParams)
    produces: Sequence[DataKey[Any]] = (TOKENIZED_PROMPT,)

    def __init__(self, name: TypedName, params: TokenProducerParams, handle: Handle) -> None:
        self.name = name

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None:
        """Publish the tokens of the prompt; nothing when there is no prompt."""
        if TOKENIZED_PROMPT in request.attributes:
            return
        parsed = request.parsed
        if parsed.prompt_text:
            data = packed(parsed.prompt_text)
            request.put(TOKENIZED_PROMPT, TokenizedPrompt(data, len(data) // BYTES_PER_TOKEN))
        elif parsed.prompt_tokens is not None:
            data = token_bytes(parsed.prompt_tokens)
            request.put(TOKENIZED_PROMPT, TokenizedPrompt(data, len(parsed.prompt_tokens)))
        elif parsed.batch is not None:
            batch = [packed(text) for text in parsed.batch]
            tokens = sum(map(len, batch)) // BYTES_PER_TOKEN
            request.put(TOKENIZED_PROMPT, TokenizedPrompt(b"", tokens, batch))


def packed(text: bytes) -> bytes:
    """``text`` padded with zeros to whole pseudo-tokens."""
    padding = _PADDING[len(text) % BYTES_PER_TOKEN]
    return text + padding if padding else text


def token_bytes(tokens: list[int]) -> bytes:
    """Token ids below 2^32 as little-endian uint32."""
    packed_ids = array("I", tokens)
    if sys.byteorder == "big":
        packed_ids.byteswap()
    return packed_ids.tobytes()
