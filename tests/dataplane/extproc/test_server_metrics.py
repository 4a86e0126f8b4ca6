"""The counters as Prometheus sees them, and the event loop's lag."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from dataplane.extproc.http2 import Limits
from dataplane.extproc.transport_metrics import (
    LAG_PERIOD_S,
    LoopLagMonitor,
    TransportCollector,
    TransportMetrics,
)
from tests.dataplane.extproc.http2_client import DATA, PING, Echo, Peer, frame, message, request, reset


def scrape(metrics: TransportMetrics, prefix: str = "pointsman_extproc_") -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(TransportCollector(metrics, prefix))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_names_and_values_of_one_connection():
    peer = Peer(Echo, Limits(max_concurrent_streams=2))
    peer.feed(request(1), request(3), request(5), frame(DATA, 1, 1, message(b"hello")), reset(3))
    peer.connection.tick()
    values = scrape(peer.metrics)
    assert values == {
        "pointsman_extproc_connections_total": 1,
        "pointsman_extproc_connections_open": 1,
        "pointsman_extproc_connections_refused_total": 0,
        "pointsman_extproc_streams_total": 2,
        "pointsman_extproc_streams_open": 0,
        "pointsman_extproc_streams_refused_total": 1,
        "pointsman_extproc_streams_reset_total": 1,
        "pointsman_extproc_streams_cancelled_total": 1,
        "pointsman_extproc_frames_received_total": 2 + 5,  # SETTINGS and an ACK first
        "pointsman_extproc_frames_sent_total": 3 + 4,  # SETTINGS, WINDOW_UPDATE and an ACK first
        "pointsman_extproc_received_bytes_total": peer.metrics.bytes_in,
        "pointsman_extproc_sent_bytes_total": peer.metrics.bytes_out,
        "pointsman_extproc_buffered_bytes": 0,
        "pointsman_extproc_handler_errors_total": 0,
        "pointsman_extproc_tls_reloads_total": 0,
        "pointsman_extproc_tls_reload_failures_total": 0,
        "pointsman_extproc_loop_lag_seconds_total": 0,
        "pointsman_extproc_loop_lag_samples_total": 0,
        "pointsman_extproc_loop_lag_last_seconds": 0,
        "pointsman_extproc_loop_lag_max_seconds": 0,
    }
    assert peer.metrics.bytes_in > 0
    assert peer.metrics.bytes_out > 0


def test_errors_and_floods_carry_a_label():
    peer = Peer(limits=Limits(max_pings=0))
    peer.feed(request(1, path=b""), frame(PING, 0, 0, bytes(8)))
    values = scrape(peer.metrics, "edge_")
    assert values['edge_protocol_errors_total{code="PROTOCOL_ERROR"}'] == 1
    assert values['edge_protocol_errors_total{code="ENHANCE_YOUR_CALM"}'] == 1
    assert values['edge_floods_total{limit="ping"}'] == 1


def test_prefix_that_cannot_begin_a_name_is_refused():
    with pytest.raises(ValueError, match="'9-' cannot begin a metric name"):
        TransportCollector(TransportMetrics(), "9-")


class TimedLoop:
    """An event loop's clock and its one timer."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cancelled = False

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback, *args) -> "TimedLoop":
        self.when, self.callback, self.args = when, callback, args
        return self

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self, late: float) -> None:
        self.now = self.when + late
        self.callback(*self.args)


def test_lag_is_how_late_the_timer_fires():
    metrics, loop = TransportMetrics(), TimedLoop()
    monitor = LoopLagMonitor(metrics, loop)  # type: ignore[arg-type]
    monitor.start()
    monitor.start()
    assert loop.when == pytest.approx(100 + LAG_PERIOD_S)
    for late in (0.0, 0.5, 0.25):
        loop.fire(late)
    assert metrics.lag_last_s == pytest.approx(0.25)
    assert metrics.lag_total_s == pytest.approx(0.75)
    assert metrics.lag_samples == 3
    assert scrape(metrics)["pointsman_extproc_loop_lag_max_seconds"] == pytest.approx(0.5)
    monitor.stop()
    monitor.stop()
    assert loop.cancelled


def test_largest_lag_is_forgotten_after_ten_to_twenty_seconds():
    metrics = TransportMetrics()
    metrics.observe_lag(0.5)
    for _ in range(198):
        metrics.observe_lag(0.001)
    assert scrape(metrics)["pointsman_extproc_loop_lag_max_seconds"] == 0.5
    metrics.observe_lag(0.001)
    assert scrape(metrics)["pointsman_extproc_loop_lag_max_seconds"] == 0.001
