"""Every metric of the picker: name, help, labels and buckets, as dashboards of the field expect them.

A test compares this list with the reference page and with a recorded list of names.
"""

from __future__ import annotations

from typing import Final

from dataplane.observability.exposition import MetricSet
from dataplane.observability.numbers import Counter, Family, Gauge, Histogram

PREFIX: Final = "llm_d_epp_"
FIELD_STAGE: Final = "[ALPHA] "
"""What the help of the field's metrics begins with."""
OWN_PREFIX: Final = "pointsman_epp_"
"""Of what the field's dashboards do not know."""

REQUEST_LABELS: Final = ("model_name", "target_model_name", "fairness_id", "priority")
PLUGIN_LABELS: Final = ("plugin_name", "plugin_type")
ATTEMPT_LABELS: Final = ("status", "target_model_name", "endpoint_name", "namespace", "port")
INFLIGHT_LABELS: Final = ("endpoint_name", "namespace", "producer_name", "fairness_id", "priority")

MAX_ATTEMPT_SERIES: Final = 40_000
"""Twice the most endpoints a pool may have: attempts are counted per endpoint and target model."""

TTFT_BOUNDS: Final = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0,
    3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0,
)  # fmt: skip
DURATION_BOUNDS: Final = (
    *TTFT_BOUNDS, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
)  # fmt: skip
NTPOT_BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TPOT_BOUNDS: Final = (
    0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125,
    0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0,
)  # fmt: skip
ITL_BOUNDS: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0,
)  # fmt: skip
SCHEDULER_BOUNDS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
REQUEST_PROCESSING_BOUNDS: Final = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
RESPONSE_PROCESSING_BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip

REQUEST_SIZE_BOUNDS: Final = tuple(1 << n for n in range(6, 31))
RESPONSE_SIZE_BOUNDS: Final = (1, *(1 << n for n in range(3, 17)))
INPUT_TOKEN_BOUNDS: Final = (1, *(1 << n for n in range(3, 15)), 32778, *(1 << n for n in range(16, 21)))
"""32778 is the field's bound, a slip for 32768; dashboards name it, so it stays."""
OUTPUT_TOKEN_BOUNDS: Final = (1, *(1 << n for n in range(3, 14)))

HIT_RATIO_BOUNDS: Final = tuple(n / 10 for n in range(11))
HIT_BYTES_BOUNDS: Final = (0, *(1 << n for n in range(4, 17)))


class RequestFamilies:
    """What is counted per model, target model, fairness id and priority."""

    def __init__(self, metrics: MetricSet) -> None:
        def histogram(name: str, text: str, bounds: tuple[float, ...], *more: str) -> Family[Histogram]:
            return metrics.histogram(PREFIX + name, text, bounds, (*REQUEST_LABELS, *more))

        self.total: Family[Counter] = metrics.counter(
            PREFIX + "request_total", "Requests that were given an endpoint.", REQUEST_LABELS
        )
        self.errors: Family[Counter] = metrics.counter(
            PREFIX + "request_error_total",
            "Requests that ended in an error.",
            (*REQUEST_LABELS, "error_code"),
        )
        self.running: Family[Gauge] = metrics.gauge(
            PREFIX + "request_running", "Requests that have an endpoint and are not over.", REQUEST_LABELS
        )
        self.duration = histogram(
            "request_duration_seconds",
            "Time from the complete request to the end of the response.",
            DURATION_BOUNDS,
        )
        self.request_size = histogram("request_size_bytes", "Size of the request body.", REQUEST_SIZE_BOUNDS)
        self.response_size = histogram(
            "response_size_bytes", "Size of the response body.", RESPONSE_SIZE_BOUNDS
        )
        self.input_tokens = histogram(
            "request_input_tokens", "Prompt tokens the model server reports.", INPUT_TOKEN_BOUNDS
        )
        self.cached_tokens = histogram(
            "request_cached_tokens", "Prompt tokens the model server had in its KV cache.", INPUT_TOKEN_BOUNDS
        )
        self.output_tokens = histogram(
            "request_output_tokens", "Tokens the model server generated.", OUTPUT_TOKEN_BOUNDS
        )
        self.ntpot = histogram(
            "request_ntpot_seconds", "Duration of a request divided by its output tokens.", NTPOT_BOUNDS
        )
        self.ttft = histogram(
            "request_ttft_seconds",
            "Time to the first byte of a streamed response body; to the end of another one.",
            TTFT_BOUNDS,
            "streaming",
        )
        self.tpot = histogram(
            "request_streaming_tpot_seconds",
            "Time per output token after the first of a stream.",
            TPOT_BOUNDS,
        )
        self.itl = histogram(
            "request_streaming_itl_seconds", "Time between two pieces of a streamed response.", ITL_BOUNDS
        )


class ProcessFamilies:
    """What is counted for the process as a whole, its plugins and its data layer."""

    def __init__(self, metrics: MetricSet, *, streams: bool) -> None:
        self.scheduler = metrics.histogram(
            PREFIX + "scheduler_e2e_duration_seconds", "Time of one scheduling decision.", SCHEDULER_BOUNDS
        )
        self.attempts = metrics.counter(
            PREFIX + "scheduler_attempts_total",
            "Scheduling decisions by outcome and chosen endpoint.",
            ATTEMPT_LABELS,
            max_series=MAX_ATTEMPT_SERIES,
        )
        self.plugins = metrics.histogram(
            PREFIX + "plugin_duration_seconds",
            "Time a plugin takes at an extension point.",
            SCHEDULER_BOUNDS,
            ("extension_point", "plugin_type", "plugin_name"),
        )
        self.plugin_failures = metrics.counter(
            OWN_PREFIX + "plugin_failures_total",
            "Exceptions of plugins that cost what the plugin would have added, and no request.",
            ("extension_point", "plugin_type", "plugin_name"),
        )
        self.request_processing = metrics.histogram(
            PREFIX + "request_processing_duration_seconds",
            "Time from the complete request to the answer to the proxy.",
            REQUEST_PROCESSING_BOUNDS,
        )
        self.response_processing = metrics.histogram(
            PREFIX + "response_processing_duration_seconds",
            "Time spent on the headers of a response.",
            RESPONSE_PROCESSING_BOUNDS,
        )
        self.poll_errors = metrics.counter(
            PREFIX + "datalayer_poll_errors_total", "Scrapes that brought no answer.", ("source_type",)
        )
        self.extract_errors = metrics.counter(
            PREFIX + "datalayer_extract_errors_total",
            "Answers that lacked series they should have.",
            ("source_type", "extractor_type"),
        )
        self.disagg_decisions = metrics.counter(
            PREFIX + "disagg_decision_total",
            "Scheduling decisions by the stages that were given endpoints.",
            (*PLUGIN_LABELS, "model_name", "decision_type"),
        )
        self.disagg_left_out = metrics.counter(
            OWN_PREFIX + "disagg_left_out_total",
            "Stages that were wanted but found no endpoint, so that requests went on without them.",
            (*PLUGIN_LABELS, "stage"),
        )
        self.rewrites = metrics.counter(
            PREFIX + "model_rewrite_decisions_total",
            "Requests whose model a rule of a model rewrite decided.",
            ("model_rewrite_name", "model_name", "target_model"),
        )
        self.hit_ratio = metrics.histogram(
            PREFIX + "prefix_indexer_hit_ratio",
            "Share of the prompt that the chosen endpoint is believed to hold.",
            HIT_RATIO_BOUNDS,
            PLUGIN_LABELS,
        )
        self.hit_bytes = metrics.histogram(
            PREFIX + "prefix_indexer_hit_bytes",
            "Bytes of prompt text that the chosen endpoint is believed to hold.",
            HIT_BYTES_BOUNDS,
            PLUGIN_LABELS,
        )
        self.streams: StreamFamilies | None = StreamFamilies(metrics) if streams else None


class StreamFamilies:
    """ext_proc streams; only with ``--enable-grpc-stream-metrics``."""

    def __init__(self, metrics: MetricSet) -> None:
        self.inflight = metrics.gauge(PREFIX + "extproc_streams_inflight", "Open ext_proc streams.").child()
        self.duration = metrics.histogram(
            PREFIX + "extproc_stream_duration_seconds", "Life of an ext_proc stream.", DURATION_BOUNDS
        ).child()
        self.total = metrics.counter(
            PREFIX + "extproc_streams_total", "Ended ext_proc streams by gRPC status code.", ("code",)
        )
