"""``pool-load-filter``: leaves out models whose pools are full, as the pools say themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import msgspec

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import PoolLoads, ServedModel


class PoolLoadFilterParams(PluginParams, frozen=True, kw_only=True):
    """All have defaults."""

    max_utilization: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.95
    """The largest share of the KV cache in use with which a pool has room."""
    max_queue_depth: Annotated[float, msgspec.Meta(ge=0, le=1_000_000.0)] = 20.0
    """The most waiting requests, for each endpoint as pickers tell them, with which a pool has room."""
    when_all_full: Literal["keep", "refuse"] = "keep"
    """What becomes of a request when every pool is full: all models stay, or it ends with 429."""


class PoolLoadFilter:
    """A pool that says nothing is not full."""

    info: ClassVar = PluginInfo("pool-load-filter", PoolLoadFilterParams)
    needs: ClassVar = (PoolLoads,)

    def __init__(self, name: TypedName, params: PoolLoadFilterParams, handle: Handle) -> None:
        self.name = name
        self._params = params
        self._loads = handle.data.table(PoolLoads)

    def filter_models(self, _: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[ServedModel]:
        """Those with room."""
        kept = [model for model in candidates if self._has_room(model.name)]
        return kept if kept or self._params.when_all_full == "refuse" else candidates

    def _has_room(self, model: str) -> bool:
        load = self._loads.by_model.get(model)
        if load is None:
            return True
        params = self._params
        return (load.utilization is None or load.utilization <= params.max_utilization) and (
            load.queue_depth is None or load.queue_depth <= params.max_queue_depth
        )
