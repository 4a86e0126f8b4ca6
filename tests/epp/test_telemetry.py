"""A picker's summary: differences of its own numbers, and its endpoints."""

from __future__ import annotations

import numpy as np
import pytest

from dataplane.extproc.transport_metrics import TransportMetrics
from epp.interfaces.request import ResponseSummary
from epp.metrics import EppMetrics
from epp.telemetry import Summariser
from tests.support.clock import ManualClock
from tests.support.pool import make_table


class Bench:
    """A summariser and what it looks at."""

    def __init__(self, endpoints: int = 2) -> None:
        self.table = make_table(endpoints, waiting=[3.0, 1.0][:endpoints], running=[1.0, 2.0][:endpoints])
        self.metrics = EppMetrics(self.table, "pool")
        self.transport = TransportMetrics()
        self.clock = ManualClock()
        self.revision = "a"
        self.summarise = Summariser(
            "w1", "pool", self.metrics, self.table, self.transport, lambda: self.revision, self.clock
        )

    def requests(self, count: int, *, error: str = "", ttft_s: float | None = None) -> None:
        numbers = self.metrics.for_request("m", "m", "f", 0)
        for _ in range(count):
            numbers.started(1)
            if ttft_s is not None:
                numbers.first_byte(ttft_s)
            if error:
                numbers.error(error)
            numbers.finished(ResponseSummary(status=200))


def test_a_quiet_second_has_counts_of_zero_and_no_times() -> None:
    bench = Bench()
    bench.requests(5)
    bench.summarise()
    bench.clock.advance(1.0)
    found = bench.summarise()
    assert (found.requests, found.errors, found.ttft_p50, found.decision_p95) == (0, 0, None, None)
    assert (found.hit_ratio, found.interval_s, found.worker, found.pool) == (None, 1.0, "w1", "pool")


def test_a_second_has_what_happened_in_it() -> None:
    bench = Bench()
    bench.requests(3)
    bench.summarise()
    bench.clock.advance(2.0)
    bench.requests(4, ttft_s=0.04)
    bench.requests(2, error="ModelServerError")
    bench.metrics.for_request("m", "m", "f", 0).error("ServiceUnavailable")
    bench.metrics.for_request("m", "m", "f", 0).error("BadRequest")
    bench.transport.lag_max_s = 0.25
    found = bench.summarise()
    assert (found.requests, found.errors, found.interval_s, found.loop_lag) == (7, 3, 2.0, 0.25)
    assert found.ttft_p50 == pytest.approx(0.0375)


def test_endpoints_are_shown_busiest_first_and_count_when_they_are_ready() -> None:
    bench = Bench()
    first, second = bench.table.all().endpoints
    bench.table.gone[second.slot] = True
    bench.table.waiting[first.slot] = np.inf
    bench.table.kv_usage[[first.slot, second.slot]] = 0.5, 0.25
    found = bench.summarise()
    assert found.kv_usage == 0.375
    assert (found.endpoints_total, found.endpoints_ready) == (2, 1)
    assert [(load.name, load.ready, load.waiting) for load in found.endpoints] == [
        ("e0", True, 1e15),
        ("e1", False, 1.0),
    ]


def test_an_empty_pool_has_a_summary() -> None:
    found = Bench(0).summarise()
    assert (found.endpoints_total, found.inflight, list(found.endpoints)) == (0, 0, [])
    assert found.kv_usage is None


def test_counts_of_a_revision_begin_with_it() -> None:
    bench = Bench()
    bench.requests(3)
    assert bench.summarise().revision_requests == 3
    bench.requests(2)
    bench.summarise()
    bench.revision = "b"
    bench.requests(4, error="ModelServerError")
    found = bench.summarise()
    assert (found.revision, found.revision_requests, found.revision_errors) == ("b", 4, 4)
    bench.requests(1)
    assert bench.summarise().revision_requests == 5
