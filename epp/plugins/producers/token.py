"""Publish the prompt as tokens.

The estimate backend needs no tokenizer: four bytes of text make one pseudo-token, which is about the ratio of
English text, and prompts that begin with the same text begin with the same tokens. Token arrays sent by the
client are used as they are. A prompt that is tokenised already is left alone.

An image, an audio clip, a video or a file becomes as many pseudo-tokens as models typically spend on it, made
of its digest: the same medium gives the same tokens.

The vllm backend has a vLLM server render the prompt, with the model's own template and tokenizer, while the
request waits. What it does not render in time, or cannot, is estimated after all.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from dataplane.errors import ConfigError, RequestError
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from dataplane.render_client import RenderClient, RenderError
from epp.interfaces.attributes import TOKENIZED_PROMPT, TokenizedPrompt
from epp.interfaces.endpoint import Candidates
from epp.interfaces.handle import Handle
from epp.interfaces.numbers import Histogram
from epp.interfaces.request import InferenceRequest, Medium
from epp.plugins.durations import positive_seconds
from epp.plugins.media_tokens import MAX_MEDIA_TOKENS, EstimateParams
from epp.plugins.model_rewriting import with_model
from epp.plugins.rendered_prompt import read_rendered

BYTES_PER_TOKEN: Final = 4
_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
"""By length modulo four."""


RENDERED_APIS: Final = ("chat/completions", "completions", "messages", "responses")
"""Ends of paths whose prompts a vLLM server renders, more specific ones first."""

RENDERINGS: Final = "prompt_renderings_total"


class VllmParams(PluginParams, frozen=True):
    """The vllm backend."""

    url: Annotated[str, msgspec.Meta(min_length=1)] = "http://localhost:8000"
    """A vLLM server that renders prompts (`vllm launch render`, or `vllm serve --enable-scale-out`)."""
    timeout: str = "5s"
    """How long a request waits for a prompt of text."""
    mm_timeout: str = "30s"
    """How long for one with images, audio or video."""

    def __post_init__(self) -> None:
        positive_seconds(self.timeout, "timeout")
        positive_seconds(self.mm_timeout, "mmTimeout")
        try:
            parts = urlsplit(self.url)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number
            is_url = False
        if not is_url or parts.query or parts.fragment or not self.url.isprintable():
            raise ConfigError(f"{self.url!r} is no address of a server; write http://host:port", path="url")


class TokenProducerParams(PluginParams, frozen=True):
    """Parameters of token-producer."""

    estimate: EstimateParams | None = None
    """Backend that packs four bytes of text into one pseudo-token. Used when no backend is named.
    Its settings say for how many tokens `image`, `video` and `audio` stand."""
    model_name: str = ""
    """Model the `vllm` backend is asked for; empty = the request's own. Without effect on `estimate`."""
    vllm: VllmParams | None = None
    """Backend that has a vLLM server render prompts: `url`, `timeout`, `mmTimeout`."""
    uds_tokenizer_config: dict[str, Any] | None = None
    """Deprecated backend behind a Unix socket; not in this build."""

    def __post_init__(self) -> None:
        if self.uds_tokenizer_config is not None:
            raise ConfigError(
                "this backend is not in this build; use `vllm`, or remove it to use `estimate`",
                path="udsTokenizerConfig",
            )
        if self.estimate is not None and self.vllm is not None:
            raise ConfigError("excludes estimate; name one backend", path="vllm")


class TokenProducer:
    """Produces TokenizedPrompt."""

    info: ClassVar = PluginInfo("token-producer", TokenProducerParams)
    produces: Sequence[DataKey[Any]] = (TOKENIZED_PROMPT,)

    def __init__(self, name: TypedName, params: TokenProducerParams, handle: Handle) -> None:
        self.name = name
        self._estimate = params.estimate or EstimateParams()
        self._model = params.model_name
        self._vllm = vllm = params.vllm
        self.prepares = vllm is not None
        self._renderings = dict.fromkeys(("rendered", "failed", "skipped"), 0)
        self._last_failure = ""
        self._client: RenderClient | None = None
        self.warnings: list[str] = []
        if vllm is not None:
            self._client = RenderClient(vllm.url, handle.clock)
            self._timeout_s = positive_seconds(vllm.timeout, "timeout")
            self._media_timeout_s = positive_seconds(vllm.mm_timeout, "mmTimeout")
        elif params.model_name:
            self.warnings.append("modelName has no effect: the estimate backend counts alike for every model")

    def inherit(self, predecessor: TokenProducer) -> None:
        """Go on counting, and keep the connections to the same server."""
        self._renderings = predecessor._renderings
        theirs = predecessor._client
        if self._client is not None and theirs is not None and self._client.url == theirs.url:
            self._client, predecessor._client = theirs, None

    async def close(self) -> None:
        """Close the connections to the server."""
        if self._client is not None:
            await self._client.close()

    def needs_preparation(self, request: InferenceRequest) -> bool:
        """Whether a server is to render the prompt, and may be asked now."""
        path = render_path(request)
        if self._client is None or path is None:
            return False
        if self._client.may_ask(path):
            return True
        self._renderings["skipped"] += 1
        return False

    async def prepare(self, request: InferenceRequest) -> None:
        """Have the prompt rendered. When that fails, nothing is left and it will be estimated."""
        client, path = self._client, render_path(request)
        if client is None or path is None:
            return
        timeout_s = self._timeout_s if request.parsed.media is None else self._media_timeout_s
        try:
            prompts = read_rendered(await client.ask(path, self._question(request), timeout_s))
        except (RenderError, RequestError, ValueError) as error:
            self._renderings["failed"] += 1
            self._last_failure = f"{path}: {error}"
            return
        self._renderings["rendered"] += 1
        data = [token_bytes(tokens) for tokens in prompts]
        total = sum(map(len, prompts))
        is_one = len(data) == 1
        request.put(
            TOKENIZED_PROMPT,
            TokenizedPrompt(data[0] if is_one else b"", total, None if is_one else data),
        )

    def _question(self, request: InferenceRequest) -> bytes:
        """The body as the model server will get it, with the model the server knows."""
        if self._model and self._model != request.target_model:
            return with_model(request.body, request.parsed, self._model)
        return request.body if request.new_body is None else request.new_body

    def metric_series(self, metric: str) -> Iterable[tuple[Sequence[str], float | Histogram]]:
        """Prompts by what became of having them rendered."""
        if metric == RENDERINGS and self.prepares:
            return [((outcome,), count) for outcome, count in self._renderings.items()]
        return ()

    def dump_state(self) -> Mapping[str, Any]:
        """How things stand with the server; nothing of the estimate backend."""
        return (
            {"backend": "estimate"}
            if self._client is None
            else {
                "backend": "vllm",
                **self._client.describe(),
                "renderings": dict(self._renderings),
                "lastFailure": self._last_failure,
            }
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


def render_path(request: InferenceRequest) -> str | None:
    """Where a server renders the prompt; None when it is known already, there is none, or nobody can."""
    parsed = request.parsed
    if not (parsed.prompt_text or parsed.batch) or TOKENIZED_PROMPT in request.attributes:
        return None
    path = request.path.rstrip("/")
    api = next((api for api in RENDERED_APIS if path.endswith(f"/{api}")), None)
    return None if api is None else f"/v1/{api}/render"


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
