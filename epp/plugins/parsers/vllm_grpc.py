"""Understand vLLM's gRPC API, without generated code: the few fields that matter are read from the wire.

Methods other than ``Generate`` and ``Embed`` are routed without being understood, should they come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from dataplane.headers import Headers
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import ParsedBody
from epp.plugins.grpc_frames import FRAME_HEADER_BYTES, check_single_frame, invalid
from epp.plugins.prompts import salted
from epp.plugins.protobuf_wire import BYTES, VARINT, WireError, fields, uint32s
from epp.plugins.vllm_grpc_usage import VllmGrpcUsageReader

GENERATE: Final = "vllm.grpc.engine.VllmEngine/Generate"
EMBED: Final = "vllm.grpc.engine.VllmEngine/Embed"

# Fields of GenerateRequest, of which EmbedRequest has the first, and of the messages inside.
_TOKENIZED: Final = (2, BYTES)
_TEXT: Final = (3, BYTES)
_SAMPLING: Final = (4, BYTES)
_STREAM: Final = (5, VARINT)
_MEDIA: Final = (7, BYTES)
_MAX_TOKENS: Final = (8, VARINT)
_ORIGINAL_TEXT: Final = (1, BYTES)
_IDS: Final = (2, BYTES)
_ID: Final = (2, VARINT)

_UINT32: Final = 0xFFFF_FFFF


class VllmGrpcParser:
    """Parses ``Generate`` and ``Embed`` of ``vllm.grpc.engine.VllmEngine``."""

    info: ClassVar = PluginInfo("vllmgrpc-parser")
    claims: ClassVar[Sequence[str]] = (GENERATE, EMBED)

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def parse(self, headers: Headers, path: str, body: bytes) -> ParsedBody:
        """Read the message of the one frame that a request is."""
        if not path.partition("?")[0].rstrip("/").endswith((f"/{GENERATE}", f"/{EMBED}")):
            return ParsedBody()
        check_single_frame(body)
        try:
            return _request(body)
        except WireError as error:
            raise invalid(error) from None

    def response_reader(self, streaming: bool) -> VllmGrpcUsageReader:
        """Reads usage; with ``streaming``, counts messages too."""
        return VllmGrpcUsageReader(streaming)


def _request(body: bytes) -> ParsedBody:
    found = _last(body, FRAME_HEADER_BYTES, len(body))
    parsed = ParsedBody(stream=found.get(_STREAM, (0, 0))[0] != 0)
    if _TOKENIZED in found:
        _set_tokens(parsed, body, *found[_TOKENIZED])
    if _TEXT in found and not parsed.prompt_tokens:
        parsed.prompt_text = _bytes(body, found[_TEXT])
    if _SAMPLING in found:
        limit = _last(body, *found[_SAMPLING]).get(_MAX_TOKENS)
        parsed.max_output_tokens = limit[0] & _UINT32 if limit is not None else None
    parsed.cache_salt = salted("", _bytes(body, found.get(_MEDIA, (0, 0))))
    return parsed


def _last(body: bytes, start: int, end: int) -> dict[tuple[int, int], tuple[int, int]]:
    """What the last field of each number and wire type holds."""
    return {(number, wire_type): (a, b) for number, wire_type, a, b in fields(body, start, end)}


def _bytes(body: bytes, span: tuple[int, int]) -> bytes:
    return body[span[0] : span[1]]


def _set_tokens(parsed: ParsedBody, body: bytes, start: int, end: int) -> None:
    """Token ids, packed or one by one; the text they were made of when there are none."""
    tokens: list[int] = []
    for number, wire_type, a, b in fields(body, start, end):
        field = (number, wire_type)
        if field == _IDS:
            tokens += uint32s(body, a, b)
        elif field == _ID:
            tokens.append(a & _UINT32)
        elif field == _ORIGINAL_TEXT:
            parsed.prompt_text = body[a:b]
    if tokens:
        parsed.prompt_text, parsed.prompt_tokens = b"", tokens
