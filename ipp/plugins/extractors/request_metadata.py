"""``request-metadata-extractor``: counts requests under way, and the tokens they may come to, by model."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

import msgspec

from dataplane.errors import RequestError
from dataplane.extproc.exchange import Ending
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from dataplane.plugin.state import listing
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ModelLoads
from ipp.interfaces.selection import serving_model

LIMITS: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Members of bodies that say how long an answer may be; the first that is there counts."""
MAX_TOKENS: Final = 10_000_000
"""Larger limits are no promise anybody keeps, and count as this."""


class RequestMetadataExtractor:
    """A request counts from when it is sent until its exchange is over, however that ends."""

    info: ClassVar = PluginInfo("request-metadata-extractor", PluginParams)
    provides: ClassVar = (ModelLoads,)
    needs_first_byte: ClassVar[bool] = False

    def __init__(self, name: TypedName, _: PluginParams, handle: Handle) -> None:
        self.name = name
        self._loads = handle.data.table(ModelLoads)

    def request_sent(self, request: RequestMessage) -> None:
        """Count it."""
        model = serving_model(request)
        if not model:
            return
        tokens = _limit(request)
        if self._loads.begin(model, tokens):
            request.state[self.name] = (model, tokens)

    def first_byte(self, request: RequestMessage, status: int) -> None:
        """Never asked for."""

    def exchange_over(self, request: RequestMessage, _: Ending) -> None:
        """Count it no longer."""
        counted = request.state.pop(self.name, None)
        if counted is not None:
            self._loads.end(*counted)

    def inherit(self, predecessor: Self) -> None:
        """Go on with what is under way: exchanges of the predecessor end in the same table."""
        self._loads.by_model = predecessor._loads.by_model

    def dump_state(self) -> dict[str, Any]:
        """For the debug page."""
        loads = self._loads.by_model
        shown = (
            {"model": model, "requests": load.requests, "tokens": load.tokens}
            for model, load in loads.items()
        )
        return listing("models", shown, len(loads))


def _limit(request: RequestMessage) -> int:
    """The most tokens that the answer may have, as far as the request says."""
    try:
        members = request.members
    except RequestError:
        return 0
    for name in LIMITS:
        raw = members.get(name)
        if raw is None:
            continue
        value = msgspec.json.decode(raw)
        if isinstance(value, int) and not isinstance(value, bool):
            return min(max(value, 0), MAX_TOKENS)
    return 0
