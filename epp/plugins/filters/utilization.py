"""Keep the endpoints that are below every given limit of utilization.

Limits are absolute, unlike the comparisons of scorers: when all endpoints are above one, nobody is left, or
everybody with ``fallbackOnEmpty``. Measured values are those of the last report of the model server; an
endpoint that has not reported counts as 0 and stays. Requests in flight are the picker's own count, so they
alone also bound a burst within one scrape interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
import numpy as np

from dataplane.errors import ConfigError
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import ENGINE_METRICS, INFLIGHT_LOAD, aligned, produced_by
from epp.interfaces.endpoint import Candidates, Endpoint, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest

ACTIVE_REQUESTS: Final = "active-requests"
KV_CACHE_UTILIZATION: Final = "kv-cache-utilization"

MEASURED: Final[Mapping[str, Callable[[Candidates], Floats]]] = {
    "running-requests": lambda candidates: candidates.table.running[candidates.slots],
    "waiting-queue": lambda candidates: candidates.table.waiting[candidates.slots],
    KV_CACHE_UTILIZATION: lambda candidates: candidates.table.kv_usage[candidates.slots],
}
"""Metrics that model servers report, and where the table keeps them."""


class Condition(PluginParams, frozen=True):
    """One limit."""

    metric: Literal["active-requests", "running-requests", "waiting-queue", "kv-cache-utilization"]
    """What is limited."""
    max_value: Annotated[float, msgspec.Meta(ge=0)]
    """Largest value that is kept; requests, or for KV-cache utilization a share from 0 to 1."""


class UtilizationParams(PluginParams, frozen=True):
    """Parameters of utilization-filter."""

    conditions: list[Condition]
    """Limits, each with `metric` and `maxValue`; all must be kept."""
    fallback_on_empty: bool = False
    """Whether everybody is kept when nobody is below the limits."""
    in_flight_load_producer_name: str = ""
    """Name of the producer of active requests; empty = inflight-load-producer."""

    def __post_init__(self) -> None:
        if not self.conditions:
            raise ConfigError("at least one condition is needed", path="conditions")


class UtilizationFilter:
    """Filters by limits of utilization."""

    info: ClassVar = PluginInfo("utilization-filter", UtilizationParams, Stability.ALPHA)

    def __init__(self, name: TypedName, params: UtilizationParams, handle: Handle) -> None:
        self.name = name
        self._load = produced_by(INFLIGHT_LOAD, params.in_flight_load_producer_name)
        self._fallback = params.fallback_on_empty
        limits: dict[str, float] = {}
        for condition in params.conditions:
            limits[condition.metric] = min(condition.max_value, limits.get(condition.metric, math.inf))
        self._max_active = limits.pop(ACTIVE_REQUESTS, None)
        self._measured = [(metric, MEASURED[metric], limit) for metric, limit in limits.items()]
        self.consumes: Sequence[DataKey[Any]] = (
            *((self._load,) if self._max_active is not None else ()),
            *((ENGINE_METRICS,) if self._measured else ()),
        )
        self.warnings = (
            [f"{KV_CACHE_UTILIZATION} is a share from 0 to 1: a maxValue of 1 or more limits nothing"]
            if limits.get(KV_CACHE_UTILIZATION, 0) >= 1
            else []
        )

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """The endpoints within all limits; with ``fallbackOnEmpty`` all of them if there is none."""
        keep = np.ones(len(candidates), dtype=np.bool_)
        load = request.get(self._load)
        if self._max_active is not None and load is not None:
            keep &= aligned(load.requests, load.candidates, candidates) <= self._max_active
        for _, values, limit in self._measured:
            keep &= values(candidates) <= limit
        if self._fallback and not keep.any():
            return candidates
        return candidates.where(keep)

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """Every limit that it exceeds."""
        alone = candidates.where(candidates.slots == endpoint.slot)
        load = request.get(self._load)
        figures = [(metric, float(values(alone)[0]), limit) for metric, values, limit in self._measured]
        if self._max_active is not None and load is not None:
            active = float(aligned(load.requests, load.candidates, alone)[0])
            figures.append((ACTIVE_REQUESTS, active, self._max_active))
        return ", ".join(
            f"{metric} {value:g} > {limit:g}" for metric, value, limit in figures if value > limit
        )
