"""``model-cost-extractor``: what answers of each model cost, by reported tokens and listed prices."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

import msgspec

from dataplane.config.decode import Duration
from dataplane.errors import ConfigError
from dataplane.extproc.exchange import Ending
from dataplane.payload.token_usage import Usage
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from dataplane.plugin.state import listing
from ipp.costs import CostLimits, CostTable
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ModelList
from ipp.interfaces.selection import serving_model
from ipp.model_prices import Prices


class ModelCostExtractorParams(PluginParams, frozen=True, kw_only=True):
    """All have defaults."""

    compression: Annotated[float, msgspec.Meta(ge=20, le=2000)] = 200.0
    """How finely the distribution of costs is kept of each model: about so many clusters."""
    flush_interval_duration: Duration = Duration(5.0)
    """How long scorers use what follows from costs before it is worked out anew; ``0s`` = not at all."""
    window_duration: Duration = Duration(7200.0)
    """After so long the costs of a model are forgotten and a new window begins; ``0s`` = never."""

    def __post_init__(self) -> None:
        for field, name in (
            ("flush_interval_duration", "flushIntervalDuration"),
            ("window_duration", "windowDuration"),
        ):
            if getattr(self, field) < 0:
                raise ConfigError("must not be negative", path=name)


class ModelCostExtractor:
    """An answer that does not say its usage, and a model that is not listed, cost nobody knows what."""

    info: ClassVar = PluginInfo("model-cost-extractor", ModelCostExtractorParams)
    provides: ClassVar = (CostTable,)
    needs: ClassVar = (ModelList,)
    needs_first_byte: ClassVar[bool] = False
    needs_usage: ClassVar[bool] = True

    def __init__(self, name: TypedName, params: ModelCostExtractorParams, handle: Handle) -> None:
        self.name = name
        self._clock = handle.clock
        self._metrics = handle.metrics.of_models
        self._prices = Prices(handle.data.table(ModelList))
        self._costs = handle.data.table(CostTable)
        self._costs.limits = CostLimits(
            params.compression, params.flush_interval_duration, params.window_duration
        )

    def request_sent(self, request: RequestMessage) -> None:
        """Nothing is known yet."""

    def first_byte(self, request: RequestMessage, status: int) -> None:
        """Never asked for."""

    def answer_used(self, request: RequestMessage, usage: Usage | None) -> None:
        """Count what it has cost."""
        model = serving_model(request)
        dollars = None if usage is None else self._prices.cost(model, usage)
        if dollars is None:
            self._metrics.costs_unknown.inc()
            return
        self._costs.add(model, dollars, self._clock())
        self._metrics.cost.child(self._metrics.models.fold(model)).inc(dollars)

    def exchange_over(self, request: RequestMessage, _: Ending) -> None:
        """All is known already."""

    def inherit(self, predecessor: Self) -> None:
        """Go on with what is known, when it was kept under the same limits."""
        if predecessor._costs.limits == self._costs.limits:
            self._costs.by_model = predecessor._costs.by_model

    def dump_state(self) -> dict[str, Any]:
        """For the debug page; US dollars."""
        now = self._clock()
        windows = {name: self._costs.window(name, now) for name in self._costs.by_model}
        shown = (
            {"model": name, "answers": window.count, "total": window.total}
            for name, window in windows.items()
            if window is not None
        )
        return listing("models", shown, sum(window is not None for window in windows.values()))
