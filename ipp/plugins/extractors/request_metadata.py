"""``request-metadata-extractor``: counts requests under way, and the tokens they may come to, by model.

How fast models answer is measured only when a scorer needs it.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

from dataplane.extproc.exchange import Ending
from dataplane.payload.token_usage import Usage
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from dataplane.plugin.state import listing
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ModelLoads
from ipp.interfaces.selection import serving_model
from ipp.plugins.output_limits import output_limit
from ipp.speeds import ModelSpeeds


class _Sent(NamedTuple):
    """A request under way."""

    model: str
    tokens: int
    at: float


class RequestMetadataExtractor:
    """A request counts from when it is sent until its exchange is over, however that ends."""

    info: ClassVar = PluginInfo("request-metadata-extractor", PluginParams)
    provides: ClassVar = (ModelLoads, ModelSpeeds)

    def __init__(self, name: TypedName, _: PluginParams, handle: Handle) -> None:
        self.name = name
        self._clock = handle.clock
        self._loads = handle.data.table(ModelLoads)
        self._speeds = handle.data.table(ModelSpeeds)

    @property
    def needs_first_byte(self) -> bool:
        """Whether a scorer goes by the time to it."""
        return self._speeds.wants_first_byte

    @property
    def needs_usage(self) -> bool:
        """Whether a scorer goes by the speed of answers."""
        return self._speeds.wants_usage

    def request_sent(self, request: RequestMessage) -> None:
        """Count it."""
        model = serving_model(request)
        if not model:
            return
        tokens = output_limit(request)
        if self._loads.begin(model, tokens):
            request.state[self.name] = _Sent(model, tokens, self._clock())

    def first_byte(self, request: RequestMessage, status: int) -> None:
        """The answer begins; a refusal is quick and says nothing."""
        sent: _Sent | None = request.state.get(self.name)
        speed = self._speeds.of(sent.model) if sent is not None and 200 <= status < 300 else None
        if sent is not None and speed is not None:
            speed.began(self._clock() - sent.at)

    def answer_used(self, request: RequestMessage, usage: Usage | None) -> None:
        """The answer has so many tokens."""
        sent: _Sent | None = request.state.get(self.name)
        tokens = None if usage is None else usage.completion_tokens
        speed = self._speeds.of(sent.model) if sent is not None and tokens else None
        if sent is not None and tokens is not None and speed is not None:
            now = self._clock()
            speed.ended(tokens, now - sent.at, now)

    def exchange_over(self, request: RequestMessage, _: Ending) -> None:
        """Count it no longer."""
        sent: _Sent | None = request.state.pop(self.name, None)
        if sent is not None:
            self._loads.end(sent.model, sent.tokens)

    def inherit(self, predecessor: Self) -> None:
        """Go on with what is under way: exchanges of the predecessor end in the same table."""
        self._loads.by_model = predecessor._loads.by_model
        self._speeds.by_model = predecessor._speeds.by_model

    def dump_state(self) -> dict[str, Any]:
        """For the debug page."""
        loads = self._loads.by_model
        shown = (
            {"model": model, "requests": load.requests, "tokens": load.tokens}
            for model, load in loads.items()
        )
        found = listing("models", shown, len(loads))
        if not (self.needs_first_byte or self.needs_usage):
            return found
        speeds = self._speeds.by_model
        measured = (
            {
                "model": model,
                "averageTtft": speed.average_ttft,
                "tokensPerSecond": speed.tokens_per_second,
                "tokensPerAnswer": speed.tokens_per_answer,
            }
            for model, speed in speeds.items()
        )
        return found | listing("speeds", measured, len(speeds))
