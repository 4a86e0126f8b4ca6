"""Route a body without understanding it: no model, no prompt, no usage.

The fallback for paths no other parser claims. Scorers that look at the prompt stay silent for such requests;
those that look at the endpoints work as usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dataplane.headers import Headers
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import ParsedBody


class PassthroughParser:
    """Accepts anything."""

    info: ClassVar = PluginInfo("passthrough-parser")
    claims: ClassVar[Sequence[str]] = ()

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def parse(self, headers: Headers, path: str, body: bytes) -> ParsedBody:
        """Nothing is known of the body."""
        return ParsedBody()

    def response_reader(self, streaming: bool) -> None:
        """Responses are of no interest."""
        return
