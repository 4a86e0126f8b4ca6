"""Understand vLLM's tokens-in, tokens-out API: a rendered prompt goes in, generated tokens come out.

The prompt is exact, so prefix matching needs no estimate. Where an image or another medium stands in the
prompt, all media have the same placeholder tokens; they are replaced, in what the picker knows, by an id made
of the medium's own hash, so that prompts with different images do not look alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from dataplane.errors import BadRequestError
from dataplane.extproc.events import BodyTransform
from dataplane.headers import Headers
from dataplane.payload.openai_usage import UsageReader
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import MediaKind, Medium, ModelUse, ParsedBody
from epp.plugins.json_body import decode
from epp.plugins.media import MAX_MEDIA, media_digest
from epp.plugins.model_rewriting import restoring, with_model
from epp.plugins.prompts import check_tokens, output_limit
from epp.plugins.rendered_prompt import Features, mark_media


class SamplingParams(msgspec.Struct, gc=False):
    """How tokens are generated."""

    max_tokens: int | None = None


class GenerateBody(msgspec.Struct, gc=False):
    """``inference/v1/generate``."""

    model: str | None = None
    token_ids: list[int] | None = None
    features: Features | str | None = None
    sampling_params: SamplingParams | None = None
    stream: bool | None = None
    cache_salt: str | None = None


_generate: Final = msgspec.json.Decoder(GenerateBody)


_KINDS: Final = {str(kind): kind for kind in (MediaKind.IMAGE, MediaKind.AUDIO, MediaKind.VIDEO)}

_MODEL_PATHS: Final = (("model",),)


class VllmHttpParser:
    """Parses ``inference/v1/generate``."""

    info: ClassVar = PluginInfo("vllmhttp-parser")
    claims: ClassVar[Sequence[str]] = ("inference/v1/generate",)

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def parse(self, headers: Headers, path: str, body: bytes) -> ParsedBody:
        """Decode the body; token ids are required, a model is not."""
        request = decode(body, _generate)
        tokens = request.token_ids
        if tokens is None:
            raise BadRequestError("token_ids is required: a list of token ids", param="token_ids")
        check_tokens(tokens, "token_ids")
        media: list[Medium] | None = None
        if isinstance(request.features, Features):
            mark_media(tokens, request.features)
            media = _media(request.features)
        sampling = request.sampling_params
        return ParsedBody(
            request.model or "",
            request.stream is True,
            prompt_tokens=tokens,
            max_output_tokens=output_limit(sampling.max_tokens) if sampling is not None else None,
            cache_salt=request.cache_salt or "",
            media=media,
            model_use=ModelUse.OPTIONAL,
        )

    def rename_model(self, body: bytes, parsed: ParsedBody, target: str) -> bytes:
        """The body with another model."""
        return with_model(body, parsed, target)

    def model_restorer(self, streaming: bool, target: str, model: str) -> BodyTransform:
        """Puts the requested model back into a response."""
        return restoring(_MODEL_PATHS, streaming, target, model)

    def response_reader(self, streaming: bool) -> UsageReader:
        """Reads usage; with ``streaming``, counts events too."""
        return UsageReader(streaming)


def _media(features: Features) -> list[Medium] | None:
    """The media by modality, as many as ``MAX_MEDIA``; those of other modalities are left out."""
    places = features.mm_placeholders or {}
    found: list[Medium] = []
    for modality, hashes in (features.mm_hashes or {}).items():
        kind = _KINDS.get(modality)
        if kind is None:
            continue
        own = places.get(modality, ())
        for i, reference in enumerate(hashes[: MAX_MEDIA - len(found)]):
            length = own[i].length if i < len(own) else 0
            found.append(Medium(kind, media_digest(reference), tokens=max(0, length)))
    return found or None
