"""Publish the prompt as tokens.

The estimate backend needs no tokenizer: four bytes of text make one pseudo-token, which is about the ratio of
English text, and prompts that begin with the same text begin with the same tokens. Token arrays sent by the
client are used as they are. A prompt that is tokenised already is left alone.

An image, an audio clip, a video or a file becomes as many pseudo-tokens as models typically spend on it, made
of its digest: the same medium gives the same tokens.
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
from epp.interfaces.request import InferenceRequest, Medium
from epp.plugins.media_tokens import MAX_MEDIA_TOKENS, EstimateParams

BYTES_PER_TOKEN: Final = 4
_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
"""By length modulo four."""


class TokenProducerParams(PluginParams, frozen=True):
    """Parameters of token-producer."""

    estimate: EstimateParams | None = None
    """Backend that packs four bytes of text into one pseudo-token. Used when no backend is named.
    Its settings say for how many tokens `image`, `video` and `audio` stand."""
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
        self._estimate = params.estimate or EstimateParams()
        self.warnings = (
            ["modelName has no effect: the estimate backend counts alike for every model"]
            if params.model_name
            else []
        )

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None:
        """Publish the tokens of the prompt; nothing when there is no prompt."""
        if TOKENIZED_PROMPT in request.attributes:
            return
        parsed = request.parsed
        if parsed.prompt_text:
            text = parsed.prompt_text if parsed.media is None else self._with_media(request, parsed.media)
            data = packed(text)
            request.put(TOKENIZED_PROMPT, TokenizedPrompt(data, len(data) // BYTES_PER_TOKEN))
        elif parsed.prompt_tokens is not None:
            data = token_bytes(parsed.prompt_tokens)
            request.put(TOKENIZED_PROMPT, TokenizedPrompt(data, len(parsed.prompt_tokens)))
        elif parsed.batch is not None:
            batch = [packed(text) for text in parsed.batch]
            tokens = sum(map(len, batch)) // BYTES_PER_TOKEN
            request.put(TOKENIZED_PROMPT, TokenizedPrompt(b"", tokens, batch))

    def _with_media(self, request: InferenceRequest, media: Sequence[Medium]) -> bytes:
        """The prompt's text, each digest of a medium drawn out to as many tokens as it stands for.

        Media beyond ``MAX_MEDIA_TOKENS`` together stand for their digest alone.
        """
        text, left, at = request.parsed.prompt_text, MAX_MEDIA_TOKENS, 0
        pieces: list[bytes] = []
        for medium in media:
            tokens = self._estimate.tokens(medium, request.headers)
            if tokens > left:
                continue
            left -= tokens
            pieces += (text[at : medium.offset], drawn_out(medium.digest, tokens))
            at = medium.offset + len(medium.digest)
        return b"".join((*pieces, text[at:]))


def drawn_out(digest: str, tokens: int) -> bytes:
    """A digest repeated so that it makes that many pseudo-tokens."""
    length = tokens * BYTES_PER_TOKEN
    return (digest.encode() * (length // len(digest) + 1))[:length]


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
