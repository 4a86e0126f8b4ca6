"""Understand SGLang's native ``generate`` API: a text or token ids go in, usage comes back in ``meta_info``.

Requests may carry several prompts; each is a prompt of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from dataplane.errors import BadRequestError
from dataplane.headers import Headers
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import ParsedBody
from epp.plugins.json_body import NOTHING, decode
from epp.plugins.meta_info_usage import MetaInfoReader
from epp.plugins.model_rewriting import with_model
from epp.plugins.prompts import check_tokens, output_limit, salted, token_list_bytes


class SamplingParams(msgspec.Struct, gc=False):
    """How tokens are generated."""

    max_new_tokens: int | None = None


class GenerateBody(msgspec.Struct, gc=False):
    """``generate``."""

    model: str | None = None
    lora_path: str | list[str | None] | None = None
    text: str | list[str] | None = None
    input_ids: list[int | list[int]] | None = None
    input_embeds: msgspec.Raw = NOTHING
    image_data: msgspec.Raw = NOTHING
    video_data: msgspec.Raw = NOTHING
    audio_data: msgspec.Raw = NOTHING
    sampling_params: SamplingParams | list[SamplingParams] | None = None
    stream: bool | None = None
    extra_key: str | list[str] | None = None


class Names(msgspec.Struct, gc=False):
    """The field that precedes an adapter's name."""

    model: str | None = None


_NO_MEDIA: Final = (b"", b"null", b"[]")
_generate: Final = msgspec.json.Decoder(GenerateBody)
_names: Final = msgspec.json.Decoder(Names)


class SglangHttpParser:
    """Parses ``generate``."""

    info: ClassVar = PluginInfo("sglanghttp-parser")
    claims: ClassVar[Sequence[str]] = ("generate",)

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def parse(self, headers: Headers, path: str, body: bytes) -> ParsedBody:
        """Decode the body; a prompt of some form is required, a model is not."""
        request = decode(body, _generate)
        adapter = request.lora_path if isinstance(request.lora_path, str) else ""
        sampling = request.sampling_params
        parsed = ParsedBody(request.model or adapter, request.stream is True, cache_salt=_salt(request))
        if isinstance(sampling, SamplingParams):
            parsed.max_output_tokens = output_limit(sampling.max_new_tokens)
        if request.input_ids is not None:
            _set_ids(parsed, request.input_ids)
        elif isinstance(request.text, str):
            parsed.prompt_text = _encoded(request.text)
        elif request.text is not None:
            parsed.batch = [_encoded(text) for text in request.text]
        elif bytes(request.input_embeds) in _NO_MEDIA:
            raise BadRequestError(
                "text or input_ids is required: a prompt, or a list of prompts", param="text"
            )
        return parsed

    def rename_model(self, body: bytes, parsed: ParsedBody, target: str) -> bytes:
        """The body with another model, or another adapter where that is what it names."""
        return with_model(body, parsed, target, "model" if decode(body, _names).model else "lora_path")

    def model_restorer(self, streaming: bool, target: str, model: str) -> None:
        """Responses name no model."""
        return

    def response_reader(self, streaming: bool) -> MetaInfoReader:
        """Reads usage; with ``streaming``, counts events too."""
        return MetaInfoReader(streaming)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _set_ids(parsed: ParsedBody, ids: list[int | list[int]]) -> None:
    """One prompt of token ids, or a batch. ``BadRequestError`` when it is a bit of both."""
    tokens = [item for item in ids if isinstance(item, int)]
    lists = [item for item in ids if isinstance(item, list)]
    if tokens and lists:
        raise BadRequestError("input_ids mixes token ids and lists of token ids", param="input_ids")
    for item in (tokens, *lists):
        check_tokens(item, "input_ids")
    if lists:
        parsed.batch = [token_list_bytes(item) for item in lists]
    else:
        parsed.prompt_tokens = tokens


def _salt(request: GenerateBody) -> str:
    """What keeps equal prompts apart: the extra key, and media of the prompt."""
    key = request.extra_key
    salt = key if isinstance(key, str) else "/".join(key or ())
    media = [bytes(raw) for raw in (request.image_data, request.video_data, request.audio_data)]
    return salted(salt, b"".join(data for data in media if data not in _NO_MEDIA))
