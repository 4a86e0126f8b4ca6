"""How this picker fares, said once a second to whoever watches. Only a picker that knows Valkey does this.

Nothing is added to the path of a request: a summary is the difference of two looks at the numbers that are
kept anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dataplane import valkey
from dataplane.clock import SYSTEM_CLOCK, Clock
from dataplane.extproc.transport_metrics import TransportMetrics
from dataplane.telemetry.summary import MAX_ENDPOINTS, MAX_NAME, EndpointLoad, Summary, quantile
from epp.interfaces.endpoint import EndpointTable
from epp.metrics import EppMetrics
from epp.metrics.catalog import SCHEDULER_BOUNDS, TTFT_BOUNDS
from epp.metrics.snapshot import Snapshot
from epp.options import EppOptions

if TYPE_CHECKING:
    from dataplane.telemetry.publisher import Publisher

LEAST_INTERVAL_S: Final = 1e-3
MOST_INTERVAL_S: Final = 3600.0
MAX_NUMBER: Final = 1e15


class _Pool(NamedTuple):
    """Of all endpoints at this moment."""

    total: int = 0
    ready: int = 0
    inflight: int = 0
    queue: float = 0.0
    kv_usage: float | None = None
    busiest: Sequence[EndpointLoad] = ()


class Summariser:
    """Makes a summary of what happened since the last one."""

    def __init__(
        self,
        worker: str,
        pool: str,
        metrics: EppMetrics,
        table: EndpointTable,
        transport: TransportMetrics,
        revision: Callable[[], str],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._worker = worker[:MAX_NAME]
        self._pool = pool[:MAX_NAME]
        self._metrics = metrics
        self._table = table
        self._transport = transport
        self._revision = revision
        self._clock = clock
        self._before = metrics.snapshot()
        self._at = clock()
        self._running = revision()
        self._base = self._before
        """Totals when the running revision was first seen."""

    def __call__(self) -> Summary:
        """The time since the last call."""
        now, at, revision = self._metrics.snapshot(), self._clock(), self._revision()
        before, interval = self._before, at - self._at
        if revision != self._running:
            self._running, self._base = revision, before
        self._before, self._at = now, at
        ttft = [a - b for a, b in zip(now.ttft, before.ttft, strict=True)]
        decisions = [a - b for a, b in zip(now.decisions, before.decisions, strict=True)]
        pool = self._pool_now()
        return Summary(
            worker=self._worker,
            pool=self._pool,
            at=time.time(),
            interval_s=min(max(interval, LEAST_INTERVAL_S), MOST_INTERVAL_S),
            requests=now.requests - before.requests,
            errors=max(0, now.errors - before.errors),
            inflight=pool.inflight,
            queue=pool.queue,
            kv_usage=pool.kv_usage,
            ttft_p50=quantile(TTFT_BOUNDS, ttft, 0.5),
            ttft_p95=quantile(TTFT_BOUNDS, ttft, 0.95),
            hit_ratio=_ratio(now, before),
            decision_p50=quantile(SCHEDULER_BOUNDS, decisions, 0.5),
            decision_p95=quantile(SCHEDULER_BOUNDS, decisions, 0.95),
            loop_lag=max(self._transport.lag_max_s, self._transport.lag_previous_max_s),
            endpoints_ready=pool.ready,
            endpoints_total=pool.total,
            endpoints=pool.busiest,
            revision=revision[:MAX_NAME],
            revision_requests=now.requests - self._base.requests,
            revision_errors=max(0, now.errors - self._base.errors),
        )

    def _pool_now(self) -> _Pool:
        table = self._table
        endpoints = table.all().endpoints
        if not endpoints:
            return _Pool()
        slots = np.fromiter((endpoint.slot for endpoint in endpoints), dtype=np.intp, count=len(endpoints))
        ready = table.fresh[slots] & ~table.gone[slots] & ~table.ejected[slots]
        waiting, running, inflight = table.waiting[slots], table.running[slots], table.inflight[slots]
        told = slots[table.fresh[slots]]
        busiest = np.argsort(-(waiting + np.maximum(running, inflight)), kind="stable")[:MAX_ENDPOINTS]
        return _Pool(
            total=len(endpoints),
            ready=int(ready.sum()),
            inflight=max(0, int(inflight.sum())),
            queue=_number(table.waiting[told].sum()),
            kv_usage=_number(table.kv_usage[told].mean()) if told.size else None,
            busiest=[
                EndpointLoad(
                    name=endpoints[i].spec.name[:MAX_NAME],
                    address=endpoints[i].key[:MAX_NAME],
                    ready=bool(ready[i]),
                    running=_number(running[i]),
                    waiting=_number(waiting[i]),
                    kv_usage=_number(table.kv_usage[slots[i]]),
                    inflight=max(0, int(inflight[i])),
                )
                for i in busiest.tolist()
            ],
        )


def _number(value: float) -> float:
    """What a model server reports, as far as it can be said."""
    return round(min(max(float(value), 0.0), MAX_NUMBER), 4)


def _ratio(now: Snapshot, before: Snapshot) -> float | None:
    hits = now.hits - before.hits
    if hits <= 0:  # none, or the index that counted them is gone with its configuration
        return None
    return min(1.0, max(0.0, (now.hit_sum - before.hit_sum) / hits))


def publisher(
    options: EppOptions,
    worker: str,
    metrics: EppMetrics,
    table: EndpointTable,
    transport: TransportMetrics,
    revision: Callable[[], str],
) -> Publisher | None:
    """What publishes this picker's summaries; None when no Valkey is known."""
    if not options.valkey_url:
        return None
    from dataplane.telemetry.publisher import Publisher

    client = valkey.connect(options.valkey_url, "--valkey-url")
    return Publisher(client, Summariser(worker, options.pool_name, metrics, table, transport, revision))
