"""The names that metrics had before they were called ``llm_d_epp_*``, for dashboards that still ask for them.

Only with ``--legacy-metrics``. Twins keep no numbers: they are made of the current metrics when ``/metrics``
is asked for, with the labels they had then and the buckets of today.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dataplane.observability.exposition import MetricSet
from epp.metrics.catalog import PREFIX


class LegacyName(NamedTuple):
    """A former name of a current metric, and the labels it had: former name -> current one."""

    name: str
    current: str
    """Without prefix."""
    labels: Mapping[str, str]


def _same(*labels: str) -> dict[str, str]:
    return {label: label for label in labels}


_MODEL: Final = _same("model_name", "target_model_name")
_POOL: Final = _same("name")
_ATTEMPT: Final = _same("status", "target_model_name", "namespace", "port") | {"pod_name": "endpoint_name"}
_STAGES: Final = _same("model_name", "decision_type")

_OBJECTIVE: Final[dict[str, tuple[str, Mapping[str, str]]]] = {
    "request_total": ("request_total", _MODEL | _same("priority")),
    "request_error_total": ("request_error_total", _MODEL | _same("error_code")),
    "request_duration_seconds": ("request_duration_seconds", _MODEL),
    "request_ttft_seconds": ("request_ttft_seconds", _MODEL),
    "request_tpot_seconds": ("request_streaming_tpot_seconds", _MODEL),
    "request_sizes": ("request_size_bytes", _MODEL),
    "response_sizes": ("response_size_bytes", _MODEL),
    "input_tokens": ("request_input_tokens", _MODEL),
    "output_tokens": ("request_output_tokens", _MODEL),
    "prompt_cached_tokens": ("request_cached_tokens", _MODEL),
    "running_requests": ("request_running", _same("model_name")),
    "normalized_time_per_output_token_seconds": ("request_ntpot_seconds", _MODEL),
}
_POOLS: Final[dict[str, tuple[str, Mapping[str, str]]]] = {
    "average_kv_cache_utilization": ("average_kv_cache_utilization", _POOL),
    "average_queue_size": ("average_queue_size", _POOL),
    "average_running_requests": ("average_running_requests", _POOL),
    "ready_pods": ("ready_endpoints", _POOL),
    "per_pod_queue_size": ("per_endpoint_queue_size", _POOL | {"model_server_pod": "model_server_endpoint"}),
}
_EXTENSION: Final[dict[str, tuple[str, Mapping[str, str]]]] = {
    "scheduler_e2e_duration_seconds": ("scheduler_e2e_duration_seconds", {}),
    "scheduler_attempts_total": ("scheduler_attempts_total", _ATTEMPT),
    "plugin_duration_seconds": (
        "plugin_duration_seconds",
        _same("extension_point", "plugin_type", "plugin_name"),
    ),
    "prefix_indexer_size": ("prefix_indexer_size", {}),
    "prefix_indexer_hit_ratio": ("prefix_indexer_hit_ratio", {}),
    "prefix_indexer_hit_bytes": ("prefix_indexer_hit_bytes", {}),
    "info": ("info", _same("commit", "build_ref")),
    "model_rewrite_decisions_total": (
        "model_rewrite_decisions_total",
        _same("model_rewrite_name", "model_name", "target_model"),
    ),
}
_SCHEDULER: Final[dict[str, tuple[str, Mapping[str, str]]]] = {
    "disagg_decision_total": ("disagg_decision_total", _STAGES),
    "pd_decision_total": ("disagg_decision_total", _STAGES),
}

LEGACY_NAMES: Final[tuple[LegacyName, ...]] = (
    *(
        LegacyName(f"{prefix}_{name}", current, labels)
        for prefix, group in (
            ("inference_objective", _OBJECTIVE),
            ("inference_pool", _POOLS),
            ("inference_extension", _EXTENSION),
            ("llm_d_inference_scheduler", _SCHEDULER),
        )
        for name, (current, labels) in group.items()
    ),
    LegacyName(
        f"{PREFIX}pd_decision_total",
        "disagg_decision_total",
        _same("plugin_name", "plugin_type", "model_name", "decision_type"),
    ),
)


def declare_twins(metrics: MetricSet) -> None:
    """Add every former name to ``metrics``, in which the current ones are declared."""
    for name, current, labels in LEGACY_NAMES:
        metrics.twin(name, PREFIX + current, labels)
