"""Spans on the wire: the bytes, the variables that say where to, and a collector that is not always there."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from dataplane.errors import ConfigError
from epp.tracing import otlp_export
from epp.tracing.otlp_encoding import encode_spans
from epp.tracing.otlp_export import OtlpExporter, Outcome, otlp_exporter
from epp.tracing.otlp_settings import OtlpSettings, read_otlp_settings
from tests.support.otlp_messages import ExportTraceServiceRequest

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


def made_spans() -> Sequence[ReadableSpan]:
    """A server span and its child, with every kind of attribute."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "picker"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("scope", "1.2")
    parent = tracer.start_span("whole", kind=SpanKind.SERVER, start_time=1_000)
    child = tracer.start_span("part", set_span_in_context(parent), start_time=2_000)
    child.set_attributes(
        {"text": "ä", "yes": True, "no": False, "zero": 0, "less": -5, "share": 0.25, "all": ["a", "b"]}
    )
    child.add_event("seen", {"n": 1}, timestamp=2_500)
    child.set_status(Status(StatusCode.ERROR, "broken"))
    child.end(3_000)
    parent.end(4_000)
    provider.shutdown()
    return kept.get_finished_spans()


def test_spans_are_what_a_collector_reads() -> None:
    spans = made_spans()
    (resource,) = ExportTraceServiceRequest.FromString(encode_spans(spans)).resource_spans
    assert [(each.key, each.value.string_value) for each in resource.resource.attributes] == [
        ("service.name", "picker")
    ]
    (scope,) = resource.scope_spans
    assert (scope.scope.name, scope.scope.version) == ("scope", "1.2")
    part, whole = scope.spans
    assert (whole.name, whole.kind, whole.parent_span_id) == ("whole", 2, b"")
    assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (1_000, 4_000)
    assert (part.name, part.kind, part.parent_span_id) == ("part", 1, whole.span_id)
    assert part.trace_id == whole.trace_id == spans[0].context.trace_id.to_bytes(16, "big")
    assert (part.status.code, part.status.message) == (2, "broken")
    assert part.flags == 0x100 | spans[0].context.trace_flags
    said = {each.key: each.value for each in part.attributes}
    assert said["text"].string_value == "ä"
    assert [said[name].bool_value for name in ("yes", "no")] == [True, False]
    assert [said[name].int_value for name in ("zero", "less")] == [0, -5]
    assert said["share"].double_value == 0.25
    assert [value.string_value for value in said["all"].array_value.values] == ["a", "b"]
    (event,) = part.events
    assert (event.name, event.time_unix_nano, event.attributes[0].value.int_value) == ("seen", 2_500, 1)


@pytest.mark.parametrize(
    ("protocol", "environment", "url"),
    [
        ("grpc", {}, "http://localhost:4317"),
        ("http/protobuf", {}, "http://localhost:4318/v1/traces"),
        ("grpc", {ENDPOINT: "https://collector"}, "https://collector:443"),
        ("grpc", {ENDPOINT: "collector:4317"}, "https://collector:4317"),
        ("grpc", {ENDPOINT: "c:1", "OTEL_EXPORTER_OTLP_INSECURE": "true"}, "http://c:1"),
        ("grpc", {ENDPOINT: "http://[::1]:4317/path"}, "http://[::1]:4317"),
        ("http/protobuf", {ENDPOINT: "http://c:1/base/"}, "http://c:1/base/v1/traces"),
        ("http/protobuf", {ENDPOINT: "http://c:1", TRACES_ENDPOINT: "http://d:2/x"}, "http://d:2/x"),
    ],
)
def test_the_address_is_the_one_the_standard_means(
    protocol: str, environment: dict[str, str], url: str
) -> None:
    assert read_otlp_settings(environment, protocol).url == url


def test_every_variable_is_read() -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20x, tenant=blue",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "ca",
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "certificate",
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY": "key",
    }
    assert read_otlp_settings(environment, "grpc") == OtlpSettings(
        protocol="grpc",
        url="http://localhost:4317",
        headers={"authorization": "Bearer x", "tenant": "blue"},
        timeout_s=2.5,
        compress=True,
        ca_file="ca",
        certificate_file="certificate",
        key_file="key",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (ENDPOINT, "ftp://x"),
        (ENDPOINT, "http://"),
        (ENDPOINT, "http://x:99999"),
        (TRACES_ENDPOINT, "http://x:0"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "novalue"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=%0a"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zip"),
    ],
)
def test_a_mistake_names_its_variable(name: str, value: str) -> None:
    for protocol in ("grpc", "http/protobuf"):
        with pytest.raises(ConfigError) as refused:
            read_otlp_settings({name: value}, protocol)
        assert refused.value.path == name


class Receiver:
    """Takes what is posted, after answering with these statuses first."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.bodies: list[bytes] = []
        self.headers: list[Any] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.headers.append(self.headers)
                receiver.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow one another quickly."""
    monkeypatch.setattr(otlp_export, "FIRST_PAUSE_S", 0.001)


@pytest.fixture
def receiver(soon: None) -> Iterator[Receiver]:
    receiver = Receiver(503)
    yield receiver
    receiver.close()


def settings_to(url: str, protocol: str, **changes: Any) -> OtlpSettings:
    return OtlpSettings(protocol, url, {"tenant": "blue"}, 20.0, False, "", "", "")._replace(**changes)


@pytest.mark.parametrize("compress", [False, True])
def test_over_http_a_busy_collector_is_tried_again(receiver: Receiver, compress: bool) -> None:
    url = f"http://127.0.0.1:{receiver.server.server_port}/v1/traces"
    exporter = otlp_exporter(settings_to(url, "http/protobuf", compress=compress))
    spans = made_spans()
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    assert len(receiver.bodies) == 2
    body = gzip.decompress(receiver.bodies[1]) if compress else receiver.bodies[1]
    assert body == encode_spans(spans)
    assert receiver.headers[1]["tenant"] == "blue"
    assert receiver.headers[1]["content-type"] == "application/x-protobuf"


def test_over_http_a_refusal_is_final(receiver: Receiver) -> None:
    receiver.statuses = [400]
    url = f"http://127.0.0.1:{receiver.server.server_port}/v1/traces"
    exporter = otlp_exporter(settings_to(url, "http/protobuf"))
    assert exporter.export(made_spans()) is SpanExportResult.FAILURE
    assert len(receiver.bodies) == 1


def test_over_grpc_a_busy_collector_is_tried_again(soon: None) -> None:
    heard: list[tuple[bytes, dict[str, Any]]] = []

    def take(request: bytes, context: grpc.ServicerContext) -> bytes:
        heard.append((request, dict(context.invocation_metadata())))
        if len(heard) == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        return b""

    server = grpc.server(ThreadPoolExecutor(1))
    name, _, method = otlp_export.METHOD[1:].partition("/")
    handler = grpc.unary_unary_rpc_method_handler(take)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        exporter = otlp_exporter(settings_to(f"http://127.0.0.1:{port}", "grpc"))
        spans = made_spans()
        assert exporter.export(spans) is SpanExportResult.SUCCESS
        exporter.shutdown()
        assert exporter.export(spans) is SpanExportResult.FAILURE
    finally:
        server.stop(0).wait()
    assert [request for request, _ in heard] == [encode_spans(spans)] * 2
    assert heard[1][1]["tenant"] == "blue"


def test_a_collector_that_stays_away_costs_no_more_than_the_timeout(soon: None) -> None:
    tried: list[float] = []

    def attempt(request: bytes, timeout_s: float) -> tuple[Outcome, str]:
        tried.append(timeout_s)
        return Outcome.AGAIN, "away"

    assert OtlpExporter(attempt, 0.05).export(made_spans()) is SpanExportResult.FAILURE
    assert len(tried) > 1
    assert max(tried) <= 0.05
