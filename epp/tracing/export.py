"""What becomes of finished spans: counted, and said in the log once in a while when nobody takes them.

Runs on the thread of the SDK's batch processor. Importing this module loads the SDK.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger(__name__)

LOG_INTERVAL_S: Final = 60.0
SDK_LOGGER: Final = "opentelemetry"


def quieten_sdk() -> None:
    """The SDK tells of every attempt; that is for those who look closely."""
    if not log.isEnabledFor(logging.DEBUG):
        logging.getLogger(SDK_LOGGER).setLevel(logging.CRITICAL)


class WatchedExporter(SpanExporter):
    """Counts what another exporter does."""

    def __init__(self, inner: SpanExporter, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._clock = clock
        self._log_at = float("-inf")
        self.exported = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Hand on, and count by outcome."""
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        finally:
            if result is SpanExportResult.SUCCESS:
                self.exported += len(spans)
            else:
                self.failed += len(spans)
                self._complain()
        return result

    def shutdown(self) -> None:
        """End the other exporter."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Ask the other exporter."""
        return self._inner.force_flush(timeout_millis)

    def counts(self) -> Iterator[tuple[Sequence[str], float]]:
        """Spans by outcome, as metrics show them."""
        yield ("exported",), self.exported
        yield ("failed",), self.failed

    def _complain(self) -> None:
        now = self._clock()
        if now >= self._log_at:
            self._log_at = now + LOG_INTERVAL_S
            log.warning(
                "spans cannot be exported, %d so far are lost; check OTEL_EXPORTER_OTLP_ENDPOINT and "
                "OTEL_EXPORTER_OTLP_PROTOCOL, or log at debug level to see what the exporter says",
                self.failed,
            )
