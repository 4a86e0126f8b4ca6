"""``ttft-percentile-extractor``: how long the answers of each model take to begin, under what load.

The first byte of the answer's body counts, not the headers, which some servers send before they have begun.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple, Self

import msgspec

from dataplane.config.decode import Duration
from dataplane.errors import ConfigError
from dataplane.extproc.exchange import Ending
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from dataplane.plugin.state import listing
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.selection import serving_model
from ipp.ttft import Limits, Observation, TtftTable, TtftWindow


class TtftPercentileExtractorParams(PluginParams, frozen=True, kw_only=True):
    """All have defaults."""

    max_observation_age: Duration = Duration(180.0)
    """Older observations say nothing of how a model does now."""
    max_requests: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    """Newest observations that say how a model does now."""
    min_requests: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    """Observations from which on a model is believed to be known."""
    low_load_window_age: Duration = Duration(3600.0)
    """Older observations are forgotten."""
    floor_interval: Duration = Duration(60.0)
    """How often it is found out anew how a model does when nobody waits."""
    window_size: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 5000
    """Observations kept of each model."""

    def __post_init__(self) -> None:
        for field in ("max_observation_age", "low_load_window_age", "floor_interval"):
            if getattr(self, field) <= 0:
                first, *rest = field.split("_")
                name = first + "".join(word.capitalize() for word in rest)
                raise ConfigError("must be more than nothing", path=name)
        if self.min_requests > self.max_requests:
            raise ConfigError("must not be more than maxRequests", path="minRequests")


class _Sent(NamedTuple):
    """A request under way."""

    window: TtftWindow
    model: str
    at: float
    in_flight: int


class TtftPercentileExtractor:
    """Only answers of status 200 to 299 are observed: a refusal is quick and says nothing."""

    info: ClassVar = PluginInfo("ttft-percentile-extractor", TtftPercentileExtractorParams)
    provides: ClassVar = (TtftTable,)
    needs_first_byte: ClassVar[bool] = True

    def __init__(self, name: TypedName, params: TtftPercentileExtractorParams, handle: Handle) -> None:
        self.name = name
        self._clock = handle.clock
        self._metrics = handle.metrics.of_models
        self._table = handle.data.table(TtftTable)
        self._table.min_requests = params.min_requests
        self._table.limits = Limits(
            params.max_observation_age,
            params.max_requests,
            params.low_load_window_age,
            params.floor_interval,
            params.window_size,
        )

    def request_sent(self, request: RequestMessage) -> None:
        """Begin to measure."""
        model = serving_model(request)
        window = self._table.window(model) if model else None
        if window is not None:
            request.state[self.name] = _Sent(window, model, self._clock(), window.in_flight)
            window.in_flight += 1

    def first_byte(self, request: RequestMessage, status: int) -> None:
        """The answer begins."""
        sent: _Sent | None = request.state.get(self.name)
        if sent is None or not 200 <= status < 300:
            return
        now = self._clock()
        sent.window.observe(Observation(now, now - sent.at, sent.in_flight))
        self._metrics.ttft.child(self._metrics.models.fold(sent.model)).observe(now - sent.at)

    def exchange_over(self, request: RequestMessage, _: Ending) -> None:
        """The model has one request less."""
        sent: _Sent | None = request.state.pop(self.name, None)
        if sent is not None:
            sent.window.in_flight -= 1

    def inherit(self, predecessor: Self) -> None:
        """Go on with what is known, when it was kept under the same limits."""
        if predecessor._table.limits == self._table.limits:
            self._table.windows = predecessor._table.windows

    def dump_state(self) -> dict[str, Any]:
        """For the debug page."""
        now = self._clock()
        windows = self._table.windows
        shown = (
            {"model": model, "inFlight": window.in_flight, **window.summary(now)._asdict()}
            for model, window in windows.items()
        )
        return listing("models", shown, len(windows))
