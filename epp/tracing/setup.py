"""Whether and how requests are traced, as ``--tracing`` and the standard ``OTEL_*`` variables say.

Spans are made when an exporter is named: by ``OTEL_TRACES_EXPORTER``, or by an OTLP endpoint alone. The SDK
is loaded only then. What of the variables is read here is checked here, because the SDK answers a mistake
with a default; where spans are sent is read by ``epp.tracing.otlp_settings``, and queue sizes and the
resource by the SDK itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NamedTuple

from dataplane.errors import ConfigError, did_you_mean
from epp.tracing.otlp_settings import GRPC, HTTP, read_otlp_settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.sampling import Sampler

    from epp.interfaces.spans import RequestTracer

SERVICE_NAME: Final = "llm-d-epp"
DEFAULT_SAMPLER: Final = "parentbased_traceidratio"
DEFAULT_RATIO: Final = 0.1
SAMPLERS: Final = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    DEFAULT_SAMPLER,
)
EXPORTERS: Final = ("otlp", "console", "none")
PROTOCOLS: Final = (GRPC, HTTP)
STOP_TIMEOUT_S: Final = 5.0
"""How long the end of the process waits for the last spans to be exported."""

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOL_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OFF: Final = "or switch tracing off with --tracing=false"


class TracingSettings(NamedTuple):
    """How to trace."""

    exporter: str
    protocol: str
    sampler: str
    ratio: float


def read_settings(environment: Mapping[str, str]) -> TracingSettings | None:
    """Settings from the environment; None when nobody is to get spans. ``ConfigError`` names the variable."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    implied = "otlp" if any(environment.get(name) for name in _ENDPOINTS) else "none"
    exporter = _choice(environment, ("OTEL_TRACES_EXPORTER",), EXPORTERS, implied)
    if exporter == "none":
        return None
    protocol = _choice(environment, _PROTOCOL_VARIABLES, PROTOCOLS, PROTOCOLS[0])
    sampler = _choice(environment, ("OTEL_TRACES_SAMPLER",), SAMPLERS, DEFAULT_SAMPLER)
    ratio = DEFAULT_RATIO if sampler == DEFAULT_SAMPLER else 1.0
    text = environment.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
    if text and sampler.endswith("traceidratio"):
        ratio = _ratio(text)
    return TracingSettings(exporter, protocol, sampler, ratio)


def _choice(
    environment: Mapping[str, str], names: tuple[str, ...], known: tuple[str, ...], default: str
) -> str:
    """The first variable that is set, which must be one of the known words."""
    for name in names:
        text = environment.get(name, "").strip()
        if text:
            if text not in known:
                words = ", ".join(known)
                raise ConfigError(f"{text!r} is not known{did_you_mean(text, known)}; use {words}", path=name)
            return text
    return default


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not 0 <= ratio <= 1:
        raise ConfigError(f"{text!r} is no share; use 0 to 1", path="OTEL_TRACES_SAMPLER_ARG")
    return ratio


class Tracing:
    """The tracer of a process, and its export until ``stop``."""

    def __init__(self, settings: TracingSettings, environment: Mapping[str, str]) -> None:
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            from epp.tracing.export import WatchedExporter, quieten_sdk
            from epp.tracing.otel import OtelTracer, TraceIds
        except ModuleNotFoundError as error:
            raise _not_installed(error) from error
        quieten_sdk()
        try:
            exporter = WatchedExporter(_exporter(settings, environment))
            processor = BatchSpanProcessor(exporter)
        except ModuleNotFoundError as error:
            raise _not_installed(error) from error
        except ConfigError:
            raise
        except Exception as error:  # the SDK has no common error for variables that it cannot use
            raise ConfigError(
                f"the exporter refuses its settings: {error}; mend the OTEL_* variables, {_OFF}",
                path="--tracing",
            ) from error
        build = version("pointsman")
        given = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        resource = {"service.version": build} | ({} if given else {"service.name": SERVICE_NAME})
        sampler, ids = _sampler(settings), TraceIds()
        self._provider: TracerProvider = TracerProvider(
            sampler=sampler,
            resource=Resource.create(resource),
            shutdown_on_exit=False,
            id_generator=ids,
        )
        self._provider.add_span_processor(processor)
        self.counts = exporter.counts
        """Spans by what became of them."""
        self.tracer: RequestTracer = OtelTracer(
            self._provider.get_tracer("pointsman.epp", build), sampler, ids
        )

    async def stop(self) -> None:
        """Export what is left, within ``STOP_TIMEOUT_S``."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # too late: the loop is closed
                loop.call_soon_threadsafe(done.set)

        # A thread of its own: one of the loop's pool would keep the process from ending.
        threading.Thread(target=shut_down, name="tracing-shutdown", daemon=True).start()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await done.wait()
        except TimeoutError:
            return


def _sampler(settings: TracingSettings) -> Sampler:
    from opentelemetry.sdk.trace import sampling

    roots: dict[str, Sampler] = {
        "always_on": sampling.ALWAYS_ON,
        "always_off": sampling.ALWAYS_OFF,
        "traceidratio": sampling.TraceIdRatioBased(settings.ratio),
    }
    root = roots[settings.sampler.removeprefix("parentbased_")]
    return sampling.ParentBased(root) if settings.sampler.startswith("parentbased_") else root


def _exporter(settings: TracingSettings, environment: Mapping[str, str]) -> SpanExporter:
    if settings.exporter == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    from epp.tracing.otlp_export import otlp_exporter

    return otlp_exporter(read_otlp_settings(environment, settings.protocol))


def _not_installed(error: ModuleNotFoundError) -> ConfigError:
    return ConfigError(
        f"the environment names an exporter of traces, and {error.name} is not installed; install "
        f"pointsman[tracing], {_OFF}",
        path="--tracing",
    )
