"""Understand the prediction service of Vertex AI: requests of the OpenAI and Anthropic APIs in gRPC messages.

The services of both versions of the API are claimed by their full names, since claims are compared on whole
path segments. Methods other than the three are routed without being understood, should they come here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from dataplane.headers import Headers
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import ParsedBody
from epp.plugins.vertex_body import (
    VertexUsageReader,
    parse_chat_completions,
    parse_raw_predict,
    parse_stream_raw_predict,
)

SERVICES: Final = (
    "google.cloud.aiplatform.v1.PredictionService",
    "google.cloud.aiplatform.v1beta1.PredictionService",
    "PredictionService",
)

_METHODS: Final[dict[str, Callable[[bytes], ParsedBody]]] = {
    "ChatCompletions": parse_chat_completions,
    "StreamRawPredict": parse_stream_raw_predict,
    "RawPredict": parse_raw_predict,
}


class VertexAiParser:
    """Parses ``ChatCompletions``, ``StreamRawPredict`` and ``RawPredict``."""

    info: ClassVar = PluginInfo("vertexai-parser")
    claims: ClassVar[Sequence[str]] = tuple(
        f"{service}/{method}" for service in SERVICES for method in _METHODS
    )

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def parse(self, headers: Headers, path: str, body: bytes) -> ParsedBody:
        """Read the JSON in the message of the one frame that a request is."""
        read = _METHODS.get(path.partition("?")[0].rstrip("/").rpartition("/")[2])
        return read(body) if read is not None else ParsedBody()

    def response_reader(self, streaming: bool) -> VertexUsageReader:
        """Reads usage; with ``streaming``, counts events too."""
        return VertexUsageReader(streaming)
