"""Metrics of what a processor knows of models: how fast they answer, sessions, and what their pools say."""

from __future__ import annotations

from typing import Final

from dataplane.observability.exposition import MetricSet
from dataplane.observability.numbers import LabelCap

TTFT_BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SCRAPE_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class ModelMetrics:
    """Filled by plugins of the selection and of the data layer."""

    def __init__(self, numbers: MetricSet) -> None:
        self.models = LabelCap()
        """Folds names of models before they become labels."""
        self._declare_use(numbers)
        self.ttft = numbers.histogram(
            "ipp_request_ttft_seconds",
            "Time from sending a request to the first byte of its answer's body.",
            TTFT_BOUNDS,
            ("model",),
        )
        self.session_hits = numbers.counter(
            "ipp_session_affinity_cache_hits_total", "Requests of a session whose model was known."
        ).child()
        self.session_misses = numbers.counter(
            "ipp_session_affinity_cache_misses_total", "Requests of a session that was not known."
        ).child()
        self.session_evictions = numbers.counter(
            "ipp_session_affinity_cache_evictions_total", "Sessions forgotten to make room, or for their age."
        ).child()
        self.sessions = numbers.gauge(
            "ipp_session_affinity_cache_size", "Sessions whose model is known."
        ).child()
        self.utilization = numbers.gauge(
            "ipp_kv_cache_utilization_ratio", "Share of its KV cache that a model's pool uses.", ("model",)
        )
        self.cpu_usage = numbers.gauge(
            "ipp_kv_cache_cpu_usage_ratio",
            "Share of its KV cache in host memory that a model's pool uses.",
            ("model",),
        )
        self.queue_depth = numbers.gauge(
            "ipp_kv_cache_queue_depth", "Requests that wait in a model's pool.", ("model",)
        )
        self.running_requests = numbers.gauge(
            "ipp_kv_cache_running_requests", "Requests that run in a model's pool.", ("model",)
        )
        self.scrape = numbers.histogram(
            "ipp_kv_cache_scrape_duration_seconds", "Time it took to ask one pool.", SCRAPE_BOUNDS
        ).child()
        self.scrape_failures = numbers.counter(
            "ipp_kv_cache_scrape_failures_total",
            "Questions to pools that came to nothing: dial, timeout, http_status, parse or request_build.",
            ("model", "reason"),
        )

    def _declare_use(self, numbers: MetricSet) -> None:
        """What answers took and cost."""
        self.cost = numbers.counter(
            "pointsman_ipp_model_cost_dollars_total",
            "What answers of a model have cost by the tokens they reported and its listed prices.",
            ("model",),
        )
        self.costs_unknown = numbers.counter(
            "pointsman_ipp_model_costs_unknown_total",
            "Answers of which nobody can say what they cost: no usage was reported, or no price is listed.",
        ).child()
        attributed = ("tenant", "workload", "requested_model", "serving_model", "namespace")
        self.inference_requests = numbers.counter(
            "ipp_inference_request_total", "Requests that were answered.", attributed
        )
        self.prompt_tokens = numbers.counter(
            "ipp_inference_prompt_tokens_total", "Tokens of prompts, as answers report them.", attributed
        )
        self.completion_tokens = numbers.counter(
            "ipp_inference_completion_tokens_total", "Tokens of answers, as they report them.", attributed
        )
