"""``pool-load-scorer``: prefers models whose pools have room, as the pools say themselves.

What a pool says includes requests that came past other processors, which nothing here has counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final

import msgspec

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import PoolLoad, PoolLoads, ServedModel

UNKNOWN: Final = 0.5
"""The score of a pool that says nothing: it is neither idle nor full."""

Depth = Annotated[float, msgspec.Meta(gt=0, le=1_000_000.0)]


class PoolLoadScorerParams(PluginParams, frozen=True, kw_only=True):
    """All have defaults."""

    full_queue_depth: Depth = 5.0
    """Waiting requests, for each endpoint as pickers tell them, at which a pool counts as full."""
    full_utilization: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    """Share of the KV cache in use at which a pool counts as full."""
    full_running_requests: Depth | None = None
    """Running requests at which a pool counts as full; left out = they do not count."""


class PoolLoadScorer:
    """The fullest of what a pool says decides."""

    info: ClassVar = PluginInfo("pool-load-scorer", PoolLoadScorerParams)
    needs: ClassVar = (PoolLoads,)

    def __init__(self, name: TypedName, params: PoolLoadScorerParams, handle: Handle) -> None:
        self.name = name
        self._params = params
        self._loads = handle.data.table(PoolLoads)

    def score_models(self, _: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """1 for a pool with nothing to do, 0 for a full one, in proportion between."""
        loads = self._loads.by_model
        return [self._room(loads.get(model.name)) for model in candidates]

    def _room(self, load: PoolLoad | None) -> float:
        if load is None:
            return UNKNOWN
        params = self._params
        said = (
            (load.utilization, params.full_utilization),
            (load.queue_depth, params.full_queue_depth),
            (load.running_requests, params.full_running_requests),
        )
        shares = [value / full for value, full in said if value is not None and full is not None]
        return 1.0 - min(max(max(shares), 0.0), 1.0) if shares else UNKNOWN
