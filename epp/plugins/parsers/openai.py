"""Understand requests and responses of the OpenAI APIs.

The body is decoded once: the model server receives the bytes the client sent, but for another model's name
where the operator or the caller wants that, and names the client's model in what it answers. Of a request
the picker learns its model, whether it streams, its prompt as text or tokens, its output limit and its cache
salt; of a response, token usage and the number of events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from dataplane.extproc.events import BodyTransform
from dataplane.headers import Headers
from dataplane.payload.openai_usage import UsageReader
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import ParsedBody
from epp.plugins.model_rewriting import restoring, with_model
from epp.plugins.openai_api import (
    parse_chat,
    parse_completion,
    parse_conversation,
    parse_embedding,
    parse_image,
    parse_responses,
)

MAX_REMEMBERED_PATHS: Final = 256
"""Paths whose API is remembered; the memory starts over beyond."""

_APIS: Final[dict[str, Callable[[bytes], ParsedBody]]] = {
    "chat/completions": parse_chat,
    "completions": parse_completion,
    "embeddings": parse_embedding,
    "responses": parse_responses,
    "conversations": parse_conversation,
    "chat/completions/render": parse_chat,
    "completions/render": parse_completion,
    "images/generations": parse_image,
}


_MODEL_PATHS: Final = (("model",), ("response", "model"))
"""Where responses name the model; events of the responses API hold the response."""


class OpenAIParser:
    """Parses the OpenAI APIs; a path it does not know is read as completions."""

    info: ClassVar = PluginInfo("openai-parser")
    claims: ClassVar[Sequence[str]] = tuple(_APIS)

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name
        self._by_path: dict[str, Callable[[bytes], ParsedBody]] = {}

    def parse(self, headers: Headers, path: str, body: bytes) -> ParsedBody:
        """Decode the body as the API of ``path``."""
        read = self._by_path.get(path)
        if read is None:
            read = _api(path)
            if len(self._by_path) >= MAX_REMEMBERED_PATHS:
                self._by_path.clear()
            self._by_path[path] = read
        return read(body)

    def rename_model(self, body: bytes, parsed: ParsedBody, target: str) -> bytes:
        """The body with another model."""
        return with_model(body, parsed, target)

    def model_restorer(self, streaming: bool, target: str, model: str) -> BodyTransform:
        """Puts the requested model back into a response."""
        return restoring(_MODEL_PATHS, streaming, target, model)

    def response_reader(self, streaming: bool) -> UsageReader:
        """Reads usage; with ``streaming``, counts events too."""
        return UsageReader(streaming)


def _api(path: str) -> Callable[[bytes], ParsedBody]:
    """The API whose name is the longest whole-segment suffix of the path."""
    segments = f"/{path.partition('?')[0].strip('/')}"
    matching = [name for name in _APIS if segments.endswith(f"/{name}")]
    return _APIS[max(matching, key=len)] if matching else parse_completion
