"""Sends spans to a collector over OTLP, by gRPC or HTTP. Blocks, on the thread of the SDK's batch processor.

A collector that is busy or away is tried again with growing pauses until the export's time is over; the
processor's queue is bounded, so what cannot be sent is lost and counted, and nothing else waits. Importing
this module loads the SDK; gRPC is loaded when it is spoken.
"""

from __future__ import annotations

import gzip
import logging
import random
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from epp.tracing.otlp_encoding import encode_spans
from epp.tracing.otlp_settings import GRPC, OtlpSettings

if TYPE_CHECKING:
    import grpc

log = logging.getLogger(__name__)

METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 5.0
AGAIN: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses after which the same request may succeed."""
AGAIN_CODES: Final = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE"}
)


class Outcome(Enum):
    """What came of one attempt."""

    TAKEN = "taken"
    AGAIN = "again"
    REFUSED = "refused"


Attempt = Callable[[bytes, float], tuple[Outcome, str]]
"""Sends a request within so many seconds; what came of it, and why."""


class OtlpExporter(SpanExporter):
    """Encodes spans and sends them."""

    def __init__(self, attempt: Attempt, timeout_s: float, close: Callable[[], None] = lambda: None) -> None:
        self._attempt = attempt
        self._timeout_s = timeout_s
        self._close = close
        self._stopped = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send them, at most until the time is over."""
        request, deadline, pause = encode_spans(spans), time.monotonic() + self._timeout_s, FIRST_PAUSE_S
        while not self._stopped.is_set():
            outcome, why = self._attempt(request, max(0.001, deadline - time.monotonic()))
            if outcome is Outcome.TAKEN:
                return SpanExportResult.SUCCESS
            log.debug("the collector has not taken %d spans: %s", len(spans), why)
            wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads attempts, no secret
            if outcome is Outcome.REFUSED or time.monotonic() + wait >= deadline:
                break
            self._stopped.wait(wait)
            pause = min(pause * 2, LONGEST_PAUSE_S)
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Send nothing any more."""
        self._stopped.set()
        self._close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is kept here."""
        return True


def otlp_exporter(settings: OtlpSettings) -> OtlpExporter:
    """An exporter as the settings say. ``OSError`` when a certificate cannot be read."""
    if settings.protocol != GRPC:
        return OtlpExporter(_over_http(settings), settings.timeout_s)
    channel = _channel(settings)
    return OtlpExporter(_over_grpc(settings, channel), settings.timeout_s, channel.close)


def _over_http(settings: OtlpSettings) -> Attempt:
    headers = settings.headers | {"content-type": "application/x-protobuf", "user-agent": "pointsman-epp"}
    if settings.compress:
        headers["content-encoding"] = "gzip"
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if settings.is_secure:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.certificate_file:
            context.load_cert_chain(settings.certificate_file, settings.key_file or None)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)

    def attempt(request: bytes, timeout_s: float) -> tuple[Outcome, str]:
        body = gzip.compress(request) if settings.compress else request
        try:
            with opener.open(
                urllib.request.Request(settings.url, body, headers),  # noqa: S310 - http or https, checked
                timeout=timeout_s,
            ):
                return Outcome.TAKEN, ""
        except urllib.error.HTTPError as error:
            with error:
                return Outcome.AGAIN if error.code in AGAIN else Outcome.REFUSED, f"status {error.code}"
        except OSError as error:
            return Outcome.AGAIN, str(error)

    return attempt


def _channel(settings: OtlpSettings) -> grpc.Channel:
    import grpc

    target = settings.url.partition("://")[2]
    compression = grpc.Compression.Gzip if settings.compress else grpc.Compression.NoCompression
    if not settings.is_secure:
        return grpc.insecure_channel(target, compression=compression)
    credentials = grpc.ssl_channel_credentials(
        *(_file(name) for name in (settings.ca_file, settings.key_file, settings.certificate_file))
    )
    return grpc.secure_channel(target, credentials, compression=compression)


def _over_grpc(settings: OtlpSettings, channel: grpc.Channel) -> Attempt:
    import grpc

    call: Any = channel.unary_unary(METHOD)
    metadata = list(settings.headers.items())

    def attempt(request: bytes, timeout_s: float) -> tuple[Outcome, str]:
        try:
            call(request, timeout=timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            code = error.code().name
            return Outcome.AGAIN if code in AGAIN_CODES else Outcome.REFUSED, f"{code}: {error.details()}"
        except ValueError as error:  # the channel is closed
            return Outcome.REFUSED, str(error)
        return Outcome.TAKEN, ""

    return attempt


def _file(name: str) -> bytes | None:
    return Path(name).read_bytes() if name else None
