"""Spans are counted by what became of them, and the log is not flooded."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from epp.tracing.export import LOG_INTERVAL_S, WatchedExporter
from tests.support.clock import ManualClock

SPANS = [ReadableSpan("a"), ReadableSpan("b")]


class Scripted(SpanExporter):
    """Ends as it is told to."""

    def __init__(self) -> None:
        self.outcome: SpanExportResult | Exception = SpanExportResult.SUCCESS
        self.calls: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def shutdown(self) -> None:
        self.calls.append("shutdown")

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self.calls.append(f"flush {timeout_millis}")
        return True


def test_spans_are_counted_by_outcome():
    inner = Scripted()
    watched = WatchedExporter(inner)
    assert watched.export(SPANS) is SpanExportResult.SUCCESS
    inner.outcome = SpanExportResult.FAILURE
    assert watched.export(SPANS[:1]) is SpanExportResult.FAILURE
    inner.outcome = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        watched.export(SPANS)
    assert dict(watched.counts()) == {("exported",): 2, ("failed",): 3}


def test_failures_are_said_once_a_minute(caplog: pytest.LogCaptureFixture):
    inner, clock = Scripted(), ManualClock()
    inner.outcome = SpanExportResult.FAILURE
    watched = WatchedExporter(inner, clock)
    with caplog.at_level(logging.WARNING):
        watched.export(SPANS)
        watched.export(SPANS)
        clock.advance(LOG_INTERVAL_S)
        watched.export(SPANS)
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(";")[0] for line in said] == [
        "spans cannot be exported, 2 so far are lost",
        "spans cannot be exported, 6 so far are lost",
    ]


def test_the_rest_is_the_other_exporters_business():
    inner = Scripted()
    watched = WatchedExporter(inner)
    assert watched.force_flush(5)
    watched.shutdown()
    assert inner.calls == ["flush 5", "shutdown"]
