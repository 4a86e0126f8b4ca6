"""Counters of the ext_proc transport, and how Prometheus sees them.

On the request path a counter is an integer attribute; the collector reads them when it is scraped. One
`TransportMetrics` belongs to one server and is touched on its event loop's thread only; a scrape from
another thread reads integers that may be one event old.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LAG_PERIOD_S = 0.1
_LAG_WINDOW = 100
"""Samples the maximum is kept for: ten seconds."""


class TransportMetrics:
    """Plain counters; ``open`` values are differences of two of them."""

    __slots__ = (
        "buffered_bytes",
        "bytes_in",
        "bytes_out",
        "connections_closed",
        "connections_opened",
        "connections_refused",
        "errors",
        "floods",
        "frames_in",
        "frames_out",
        "handler_errors",
        "lag_last_s",
        "lag_max_s",
        "lag_previous_max_s",
        "lag_samples",
        "lag_total_s",
        "streams_cancelled",
        "streams_closed",
        "streams_opened",
        "streams_refused",
        "streams_reset",
        "tls_reload_failures",
        "tls_reloads",
    )

    def __init__(self) -> None:
        self.connections_opened = 0
        self.connections_closed = 0
        self.connections_refused = 0
        self.streams_opened = 0
        self.streams_closed = 0
        self.streams_refused = 0
        self.streams_reset = 0
        self.streams_cancelled = 0
        self.frames_in = 0
        self.frames_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.buffered_bytes = 0
        self.handler_errors = 0
        self.tls_reloads = 0
        self.tls_reload_failures = 0
        self.errors: dict[str, int] = {}
        self.floods: dict[str, int] = {}
        self.lag_last_s = 0.0
        self.lag_max_s = 0.0
        self.lag_previous_max_s = 0.0
        self.lag_total_s = 0.0
        self.lag_samples = 0

    @property
    def connections_open(self) -> int:
        """Connections at this moment."""
        return self.connections_opened - self.connections_closed

    @property
    def streams_open(self) -> int:
        """Streams at this moment."""
        return self.streams_opened - self.streams_closed

    def count_error(self, code: str) -> None:
        """One protocol error; ``code`` is an HTTP/2 error code's name, so there are at most fourteen."""
        self.errors[code] = self.errors.get(code, 0) + 1

    def count_flood(self, kind: str) -> None:
        """One connection ended for a flood; ``kind`` is the name of the limit."""
        self.floods[kind] = self.floods.get(kind, 0) + 1

    def observe_lag(self, lag_s: float) -> None:
        """How late a timer of the event loop fired."""
        self.lag_last_s = lag_s
        self.lag_total_s += lag_s
        self.lag_samples += 1
        if self.lag_samples % _LAG_WINDOW == 0:
            self.lag_previous_max_s, self.lag_max_s = self.lag_max_s, 0.0
        self.lag_max_s = max(self.lag_max_s, lag_s)


class LoopLagMonitor:
    """Measures the event loop's delay by a timer every 100 ms."""

    def __init__(self, metrics: TransportMetrics, loop: asyncio.AbstractEventLoop) -> None:
        self._metrics = metrics
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; harmless when running."""
        if self._timer is None:
            self._arm()

    def stop(self) -> None:
        """End; harmless when not running."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        due = self._loop.time() + LAG_PERIOD_S
        self._timer = self._loop.call_at(due, self._fire, due)

    def _fire(self, due: float) -> None:
        self._metrics.observe_lag(max(0.0, self._loop.time() - due))
        self._arm()


_COUNTERS = {
    "connections": ("connections_opened", "Connections accepted"),
    "connections_refused": ("connections_refused", "Connections closed at once because there were too many"),
    "streams": ("streams_opened", "Streams opened"),
    "streams_refused": ("streams_refused", "Streams refused because the connection had too many"),
    "streams_reset": ("streams_reset", "Streams reset by the peer"),
    "streams_cancelled": ("streams_cancelled", "Streams that ended before their handler finished them"),
    "frames_received": ("frames_in", "HTTP/2 frames received"),
    "frames_sent": ("frames_out", "HTTP/2 frames sent"),
    "received_bytes": ("bytes_in", "Bytes received"),
    "sent_bytes": ("bytes_out", "Bytes sent"),
    "handler_errors": ("handler_errors", "Exceptions raised by stream handlers"),
    "tls_reloads": ("tls_reloads", "Times a changed certificate was taken"),
    "tls_reload_failures": (
        "tls_reload_failures",
        "Times a changed certificate was refused and the old one kept",
    ),
    "loop_lag_seconds": ("lag_total_s", "Sum of the event loop's delays, sampled every 100 ms"),
    "loop_lag_samples": ("lag_samples", "Samples of the event loop's delay"),
}

_GAUGES = {
    "connections_open": ("connections_open", "Connections open"),
    "streams_open": ("streams_open", "Streams open"),
    "buffered_bytes": ("buffered_bytes", "Bytes of unfinished messages and of answers peers do not take yet"),
    "loop_lag_last_seconds": ("lag_last_s", "Last sampled delay of the event loop"),
}


class TransportCollector(Collector):
    """Exposes the counters of one server under names that begin with ``prefix``."""

    def __init__(self, metrics: TransportMetrics, prefix: str = "pointsman_extproc_") -> None:
        if re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", prefix) is None:
            raise ValueError(f"{prefix!r} cannot begin a metric name")
        self._metrics = metrics
        self._prefix = prefix

    def collect(self) -> Iterable[Metric]:
        """The families of one scrape."""
        metrics = self._metrics
        for name, (attribute, text) in _COUNTERS.items():
            yield CounterMetricFamily(self._prefix + name, text, value=getattr(metrics, attribute))
        for name, (attribute, text) in _GAUGES.items():
            yield GaugeMetricFamily(self._prefix + name, text, value=getattr(metrics, attribute))
        lag_max = max(metrics.lag_max_s, metrics.lag_previous_max_s)
        text = "Largest delay of the event loop in the last ten to twenty seconds"
        yield GaugeMetricFamily(self._prefix + "loop_lag_max_seconds", text, value=lag_max)
        yield self._labelled(
            "protocol_errors", "Protocol errors of peers by HTTP/2 error code", "code", metrics.errors
        )
        yield self._labelled("floods", "Connections ended for a flood by limit", "limit", metrics.floods)

    def _labelled(self, name: str, text: str, label: str, values: dict[str, int]) -> Metric:
        family = CounterMetricFamily(self._prefix + name, text, labels=[label])
        for key, value in sorted(values.items()):
            family.add_metric([key], value)
        return family
