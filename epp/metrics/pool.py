"""Gauges of the pool, read from the endpoint table at the moment somebody asks.

Averages and deviations are over the endpoints whose metrics are fresh; without any, the series are absent
rather than repeating old numbers. An empty pool has no load, so its series are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from dataplane.observability.exposition import MetricSet
from epp.interfaces.endpoint import Endpoint, EndpointTable, Floats
from epp.metrics.catalog import INFLIGHT_LABELS, PREFIX

INFLIGHT_PRODUCER: Final = "inflight-load-producer"

Rows = Iterable[tuple[Sequence[str], float]]

_COLUMNS: Final[dict[str, tuple[str, Callable[[EndpointTable], Floats]]]] = {
    "kv_cache_utilization": ("KV-cache utilisation, 0 to 1", lambda table: table.kv_usage),
    "queue_size": ("waiting requests", lambda table: table.waiting),
    "running_requests": ("running requests", lambda table: table.running),
}


def declare(metrics: MetricSet, table: EndpointTable, pool: str) -> None:
    """Add the gauges of ``table``, the pool named ``pool``, to ``metrics``."""
    for name, (text, column) in _COLUMNS.items():
        metrics.computed(
            f"{PREFIX}average_{name}",
            f"Average over endpoints with fresh metrics: {text}.",
            ("name",),
            _statistic(table, pool, column, _mean),
        )
        metrics.computed(
            f"{PREFIX}std_dev_{name}",
            f"Sample standard deviation over endpoints with fresh metrics: {text}.",
            ("name",),
            _statistic(table, pool, column, _deviation),
        )
    metrics.computed(
        PREFIX + "ready_endpoints", "Endpoints of the pool.", ("name",), lambda: [((pool,), len(table))]
    )
    metrics.computed(
        PREFIX + "per_endpoint_queue_size",
        "Waiting requests an endpoint with fresh metrics reports.",
        ("name", "model_server_endpoint"),
        lambda: (
            ((pool, endpoint.spec.name), float(table.waiting[endpoint.slot]))
            for endpoint in table.all().endpoints
            if table.fresh[endpoint.slot]
        ),
    )
    metrics.computed(
        PREFIX + "inflight_requests",
        "Requests sent to an endpoint and not over.",
        INFLIGHT_LABELS,
        lambda: _per_endpoint(table, table.inflight),
    )
    metrics.computed(
        PREFIX + "inflight_tokens",
        "Tokens that requests sent to an endpoint still stand for.",
        INFLIGHT_LABELS,
        lambda: _per_endpoint(table, table.inflight_tokens),
    )


def _statistic(
    table: EndpointTable,
    pool: str,
    column: Callable[[EndpointTable], Floats],
    statistic: Callable[[Floats], float],
) -> Callable[[], Rows]:
    def read() -> Rows:
        slots = table.all().slots
        fresh = slots[table.fresh[slots]]
        if len(slots) and not len(fresh):
            return ()
        return [((pool,), round(statistic(column(table)[fresh]), 2))]

    return read


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0


def _deviation(values: Floats) -> float:
    return float(np.std(values, ddof=1)) if values.size > 1 else 0.0


def _per_endpoint(table: EndpointTable, column: Floats) -> Iterator[tuple[Sequence[str], float]]:
    """The ledger is kept per endpoint: the labels of flow are there, and empty."""
    rows: Sequence[Endpoint] = table.all().endpoints
    return (
        ((row.spec.name, row.spec.namespace, INFLIGHT_PRODUCER, "", ""), float(column[row.slot]))
        for row in rows
    )
