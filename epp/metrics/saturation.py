"""How full the pool is, as the configuration's saturation detector says at the moment somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dataplane.observability.exposition import MetricSet
from dataplane.observability.numbers import label_value
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.saturation import SaturationDetector
from epp.metrics.catalog import PREFIX


class SaturationGauges:
    """Exposes what the detector of the current configuration says of the whole pool."""

    def __init__(self, metrics: MetricSet, table: EndpointTable, pool: str) -> None:
        self._table = table
        self._pool = pool
        self._detector: SaturationDetector | None = None
        metrics.computed(
            PREFIX + "flow_control_pool_saturation",
            "How full the pool is; from 1 on requests of negative priority are refused.",
            ("inference_pool", "stage"),
            self._saturation,
        )
        metrics.computed(
            PREFIX + "flow_control_stale_endpoints",
            "Endpoints that count as full because their metrics are too old.",
            ("detector",),
            self._stale,
        )

    def watch(self, detector: SaturationDetector) -> None:
        """From now on this detector."""
        self._detector = detector

    def _saturation(self) -> Iterable[tuple[Sequence[str], float]]:
        if self._detector is not None:
            saturation = self._detector.saturation_of(self._table.all().present())
            yield (self._pool, "effective"), saturation

    def _stale(self) -> Iterable[tuple[Sequence[str], float]]:
        if self._detector is not None:
            stale = self._detector.stale_among(self._table.all().present())
            yield (label_value(self._detector.name.name),), stale
