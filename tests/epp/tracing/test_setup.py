"""Whether spans are made and where they go, from the environment; mistakes name their variable."""

import subprocess
import sys

import pytest

from dataplane.errors import ConfigError
from epp.tracing import setup
from epp.tracing.setup import Tracing, TracingSettings, read_settings

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", **ENDPOINT},
        {"OTEL_SDK_DISABLED": "true", **ENDPOINT},
        {"OTEL_SERVICE_NAME": "a"},
    ],
)
def test_without_an_exporter_nothing_is_traced(environment: dict[str, str]):
    assert read_settings(environment) is None


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        (ENDPOINT, TracingSettings("otlp", "grpc", "parentbased_traceidratio", 0.1)),
        (
            {"OTEL_TRACES_EXPORTER": "console"},
            TracingSettings("console", "grpc", "parentbased_traceidratio", 0.1),
        ),
        (
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_TRACES_SAMPLER": "always_on"},
            TracingSettings("otlp", "http/protobuf", "always_on", 1.0),
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_TRACES_SAMPLER": "traceidratio",
            },
            TracingSettings("otlp", "grpc", "traceidratio", 1.0),
        ),
        (
            {**ENDPOINT, "OTEL_TRACES_SAMPLER_ARG": "0.25"},
            TracingSettings("otlp", "grpc", "parentbased_traceidratio", 0.25),
        ),
        (
            {
                **ENDPOINT,
                "OTEL_TRACES_SAMPLER": "parentbased_always_off",
                "OTEL_TRACES_SAMPLER_ARG": "ignored",
            },
            TracingSettings("otlp", "grpc", "parentbased_always_off", 1.0),
        ),
    ],
)
def test_settings_are_the_standard_ones(environment: dict[str, str], settings: TracingSettings):
    assert read_settings(environment) == settings


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "'zipkin' is not known; use otlp, console, none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "'http/json' is not known"),
        ("OTEL_TRACES_SAMPLER", "alway_on", 'did you mean "always_on"'),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5", "'1.5' is no share; use 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "nan", "'nan' is no share"),
        ("OTEL_TRACES_SAMPLER_ARG", "half", "'half' is no share"),
    ],
)
def test_a_mistake_names_its_variable(name: str, value: str, complaint: str):
    with pytest.raises(ConfigError) as refused:
        read_settings({**ENDPOINT, name: value})
    assert refused.value.path == name
    assert complaint in refused.value.message


@pytest.mark.parametrize(
    ("sampler", "described"),
    [
        ("always_off", "AlwaysOffSampler"),
        ("traceidratio", "TraceIdRatioBased{0.5}"),
        ("parentbased_always_on", "ParentBased{root:AlwaysOnSampler,"),
        ("parentbased_traceidratio", "ParentBased{root:TraceIdRatioBased{0.5},"),
    ],
)
def test_the_sampler_is_the_named_one(sampler: str, described: str):
    settings = TracingSettings("otlp", "grpc", sampler, 0.5)
    assert setup._sampler(settings).get_description().startswith(described)


async def test_it_stops_though_nobody_takes_the_spans():
    tracing = Tracing(TracingSettings("otlp", "http/protobuf", "always_on", 1.0), {})
    await tracing.stop()


def test_a_missing_package_is_a_clear_refusal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError) as refused:
        Tracing(TracingSettings("otlp", "grpc", "always_on", 1.0), {})
    assert refused.value.path == "--tracing"
    assert "install pointsman[tracing], or switch tracing off with --tracing=false" in refused.value.message


def test_a_process_that_does_not_trace_loads_nothing_of_the_sdk():
    code = "import sys, epp.app; print(*(name for name in sys.modules if name.startswith('opentelemetry.')))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def test_settings_that_the_sdk_refuses_are_a_clear_refusal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    with pytest.raises(ConfigError) as refused:
        Tracing(TracingSettings("otlp", "grpc", "always_on", 1.0), {})
    assert refused.value.message.startswith("the exporter refuses its settings: ")
    assert "mend the OTEL_* variables" in refused.value.message


def test_certificates_that_cannot_be_read_are_a_clear_refusal():
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://localhost:4317",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere/ca.pem",
    }
    for protocol in ("grpc", "http/protobuf"):
        with pytest.raises(ConfigError, match="No such file"):
            Tracing(TracingSettings("otlp", protocol, "always_on", 1.0), environment)
