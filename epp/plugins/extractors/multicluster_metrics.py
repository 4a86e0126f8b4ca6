"""Leave the averages of the pool that an endpoint stands for on that endpoint.

They are gauges of the picker of that pool. A value that cannot be true (negative, not finite) counts as
absent; a gauge that is absent is an error and takes its attribute away. Pickers have no gauge of a pool none
of whose endpoints is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from dataplane.errors import ConfigError
from dataplane.observability.series import Series, SeriesSpec
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import POOL_KV_CACHE_UTILIZATION, POOL_QUEUE_SIZE
from epp.interfaces.data_layer import Measurements
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle


class MulticlusterMetricsExtractorParams(PluginParams, frozen=True):
    """Parameters of ``multicluster-metrics-extractor``."""

    kv_cache_utilization_metric: str = "llm_d_epp_average_kv_cache_utilization"
    """Gauge of the pool's mean KV-cache utilization, 0 to 1; `name` or `name{label=value,...}`."""
    queue_size_metric: str = "llm_d_epp_average_queue_size"
    """Gauge of the pool's waiting requests per endpoint; likewise."""


class MulticlusterMetricsExtractor:
    """Leaves the averages of pools on endpoints."""

    info: ClassVar[PluginInfo] = PluginInfo(
        "multicluster-metrics-extractor", MulticlusterMetricsExtractorParams, Stability.ALPHA
    )
    expects: ClassVar[str] = "picker-metrics"

    def __init__(self, name: TypedName, params: MulticlusterMetricsExtractorParams, handle: Handle) -> None:
        self.name = name
        self._specs: Mapping[DataKey[float], SeriesSpec] = {
            POOL_KV_CACHE_UTILIZATION.by(name.name): _spec(
                params.kv_cache_utilization_metric, "kvCacheUtilizationMetric"
            ),
            POOL_QUEUE_SIZE.by(name.name): _spec(params.queue_size_metric, "queueSizeMetric"),
        }
        self.produces: Sequence[DataKey[Any]] = tuple(self._specs)

    def reader(self, endpoint: Endpoint) -> Callable[[bytes], Measurements]:
        """A reader that remembers positions, so it serves one endpoint only."""
        series = [(key, spec, Series(spec)) for key, spec in self._specs.items()]

        def read(page: bytes) -> Measurements:
            attributes = {key: _believable(each.read(page)) for key, _, each in series}
            missing = {str(key): str(spec) for key, spec, _ in series if attributes[key] is None}
            return Measurements(attributes=attributes, missing=missing or None)

        return read


def _believable(value: float | None) -> float | None:
    return value if value is not None and value >= 0 else None


def _spec(text: str, field: str) -> SeriesSpec:
    try:
        return SeriesSpec.parse(text)
    except ValueError as error:
        raise ConfigError(str(error), path=field) from error
