"""Understand requests and responses of the Anthropic messages API.

Counting tokens computes nothing, so such a request is only routed: its body is not judged, its prompt leaves
no trace in any prefix index, and its response has no usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from dataplane.extproc.events import BodyTransform
from dataplane.headers import Headers
from dataplane.payload.anthropic_usage import AnthropicUsageReader
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import ParsedBody
from epp.plugins.anthropic_body import parse_count, parse_messages
from epp.plugins.model_rewriting import restoring, with_model

_MODEL_PATHS: Final = (("model",), ("message", "model"))
"""Where responses name the model; a stream begins with the message."""


class AnthropicParser:
    """Parses ``messages`` and ``messages/count_tokens``."""

    info: ClassVar = PluginInfo("anthropic-parser")
    claims: ClassVar[Sequence[str]] = ("messages", "messages/count_tokens")

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def parse(self, headers: Headers, path: str, body: bytes) -> ParsedBody:
        """Decode the body as the API of ``path``."""
        if path.partition("?")[0].rstrip("/").endswith("/count_tokens"):
            return parse_count(body)
        return parse_messages(body)

    def rename_model(self, body: bytes, parsed: ParsedBody, target: str) -> bytes:
        """The body with another model."""
        return with_model(body, parsed, target)

    def model_restorer(self, streaming: bool, target: str, model: str) -> BodyTransform:
        """Puts the requested model back into a response."""
        return restoring(_MODEL_PATHS, streaming, target, model)

    def response_reader(self, streaming: bool) -> AnthropicUsageReader:
        """Reads usage; with ``streaming``, counts events too."""
        return AnthropicUsageReader(streaming)
