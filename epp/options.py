"""The flags of ``pointsman epp``: llm-d's names, spelling and defaults, and a few of our own.

``parse_args`` turns an argument list into ``EppOptions`` or raises a ``ConfigError`` that names the flag.
Flags whose machinery this build does not have are accepted where that changes nothing, and refused or warned
of where it would (``docs/reference/epp-flags.md`` says which and why). Warnings are kept in the options,
because there is no log yet when they arise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dataplane.errors import ConfigError
from dataplane.flags import Flag, Kind, parse_flags
from dataplane.process_flags import (
    LOG_FLAGS,
    MAX_VERBOSITY,
    METRICS_TLS_FLAGS,
    NO_EFFECT,
    TLS_FLAGS,
    check_durations,
    check_ports,
    check_ranges,
    check_sources,
    check_xds,
    valkey_url,
)
from dataplane.process_options import (
    ADDRESS_FLAGS,
    PLUGIN_FLAGS,
    REQUEST_FLAGS,
    ProcessOptions,
    config_flags,
    options_of,
    xds_flags,
)

MIN_REFRESH_S: Final = 0.05
MAX_REQUEST_BODY: Final = 1 << 30
MAX_DECISION_LOG: Final = 100_000
MIN_JOURNAL_BYTES: Final = 2 << 20
MAX_JOURNAL_BYTES: Final = 1 << 40

EXPLAIN_HEADER_MODES: Final = ("off", "id", "full")

_METRIC_FLAG_REMOVED: Final = (
    "name the series of your engine in core-metrics-extractor's engineConfigs, in the configuration file"
)

_NO_KUBERNETES: Final = (
    "this build does not watch Kubernetes; list the endpoints in a file and name it in dataLayer.discovery "
    "(file-discovery)"
)
_ABSENT: Final = {
    "endpoint-selector": _NO_KUBERNETES,
    "endpoint-target-ports": _NO_KUBERNETES,
    "ha-enable-leader-election": "this build elects no leader; run one replica, or several side by side",
}
"""Flags that ask for what this build does not have, and what to do instead."""

_NO_EFFECT: Final = {
    **NO_EFFECT,
    "grpc-max-send-msg-size": "no message the picker sends is larger than 64 KiB",
    "pool-namespace": "it says which documents of --objects-file count, and there is no such file",
}
"""Flags that are warned of when they ask for something explicitly."""

FLAGS: Final[tuple[Flag, ...]] = (
    Flag("grpc-port", Kind.NUMBER, "9002", "port of the ext_proc service"),
    Flag("grpc-health-port", Kind.NUMBER, "9003", "port of the gRPC health service"),
    *ADDRESS_FLAGS,
    Flag("pool-name", Kind.TEXT, "", "name of the pool; empty = epp"),
    Flag("pool-namespace", Kind.TEXT, "", "namespace whose objects count; empty = every one"),
    Flag("pool-group", Kind.TEXT, "inference.networking.k8s.io", "API group by which objects name the pool"),
    Flag("endpoint-selector", Kind.TEXT, "", "pod labels; refused, this build watches no Kubernetes"),
    Flag("endpoint-target-ports", Kind.LIST, "", "ports of selected pods; refused, see --endpoint-selector"),
    *config_flags("EndpointPickerConfig"),
    Flag("objects-file", Kind.TEXT, "", "file or folder with objectives and model rewrites, watched"),
    *xds_flags("objects and configuration"),
    Flag("endpoints-file", Kind.TEXT, "", "file with the endpoints, watched; instead of dataLayer.discovery"),
    *PLUGIN_FLAGS,
    Flag("ha-enable-leader-election", Kind.SWITCH, "false", "leader election; refused, not in this build"),
    *REQUEST_FLAGS,
    Flag("grpc-max-send-msg-size", Kind.TEXT, "", "no effect: messages sent stay below 64 KiB"),
    Flag("disable-endpoint-subset-filter", Kind.SWITCH, "false", "ignore subset hints of the proxy"),
    Flag("emit-endpoint-scores", Kind.SWITCH, "false", "send the proxy every candidate's total score"),
    Flag("decision-log-size", Kind.NUMBER, "200", "decisions kept for /debug/decisions; 0 = none"),
    Flag("explain-sampling", Kind.TEXT, "0.01", "share of decisions that are traced in full, 0 to 1"),
    Flag("explain-header", Kind.TEXT, "off", "what x-pointsman-explain may do: off, id or full"),
    Flag("valkey-url", Kind.TEXT, "", "Valkey for usage and telemetry; empty = $VALKEY_URL, or none"),
    Flag(
        "usage-journal", Kind.TEXT, "", "folder that keeps usage records until Valkey has them; empty = none"
    ),
    Flag("usage-journal-size", Kind.QUANTITY, "256Mi", "most the journal takes; the oldest records go then"),
    Flag("refresh-metrics-interval", Kind.DURATION, "50ms", "time between two scrapes of an endpoint"),
    Flag("refresh-prometheus-metrics-interval", Kind.DURATION, "5s", "no effect: computed when asked for"),
    Flag("metrics-staleness-threshold", Kind.DURATION, "2s", "age at which metrics are not trusted"),
    Flag("tracing", Kind.SWITCH, "true", "spans of requests, exported as OTEL_* variables say"),
    Flag("health-checking", Kind.SWITCH, "false", "answer health checks on the ext_proc port as well"),
    Flag("enable-pprof", Kind.SWITCH, "true", "/debug/stacks and /debug/profile on the metrics port"),
    *TLS_FLAGS,
    *METRICS_TLS_FLAGS,
    Flag("enable-grpc-stream-metrics", Kind.SWITCH, "false", "count ext_proc streams"),
    Flag("legacy-metrics", Kind.SWITCH, "false", "expose metrics under their former names as well"),
    *LOG_FLAGS,
    *(
        Flag(name, Kind.TEXT, "", "", removed=_METRIC_FLAG_REMOVED)
        for name in (
            "total-queued-requests-metric",
            "total-running-requests-metric",
            "kv-cache-usage-percentage-metric",
            "lora-info-metric",
            "cache-info-metric",
        )
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EppOptions(ProcessOptions):
    """What the flags say, checked. Times in seconds, sizes in bytes; names are those of the flags."""

    grpc_port: int = 9002
    grpc_health_port: int = 9003
    pool_name: str = "epp"
    pool_namespace: str = ""
    pool_group: str = "inference.networking.k8s.io"
    endpoints_file: str = ""
    objects_file: str = ""
    disable_endpoint_subset_filter: bool = False
    emit_endpoint_scores: bool = False
    decision_log_size: int = 200
    explain_sampling: float = 0.01
    """Share of decisions that are traced."""
    explain_header: str = "off"
    """off: the header is ignored; id: its requests are traced; full: and the response shows endpoints."""
    usage_journal: str = ""
    """When set, usage is recorded there and delivered to Valkey."""
    usage_journal_size: int = 256 << 20
    refresh_metrics_interval: float = 0.05
    metrics_staleness_threshold: float = 2.0
    tracing: bool = True
    enable_pprof: bool = True
    enable_grpc_stream_metrics: bool = False
    legacy_metrics: bool = False


def parse_args(argv: Sequence[str]) -> EppOptions:
    """Options from flags. ``ConfigError`` names the wrong flag."""
    given = parse_flags(FLAGS, argv)
    values = {flag.name: flag.read(flag.default) for flag in FLAGS if not flag.removed} | given
    _refuse_absent(values)
    _check_values(values)
    clear = check_xds(values)
    url = valkey_url(values, needed_by="usage-journal")
    warnings = [*_warnings(given), *clear]
    interval = values["refresh-metrics-interval"]
    if interval < MIN_REFRESH_S:
        warnings.append(
            f"--refresh-metrics-interval={interval:g}s is raised to its minimum of {MIN_REFRESH_S:g}s"
        )
    return options_of(
        EppOptions,
        given,
        values,
        valkey_url=url,
        pool_name=values["pool-name"] or "epp",
        refresh_metrics_interval=max(interval, MIN_REFRESH_S),
        explain_sampling=_share(values, "explain-sampling"),
        warnings=tuple(warnings),
    )


def _refuse_absent(values: Mapping[str, Any]) -> None:
    """``ConfigError`` for flags that ask for what this build does not have."""
    for name, reason in _ABSENT.items():
        if values[name]:
            raise ConfigError(reason, path=f"--{name}")


def _check_values(values: Mapping[str, Any]) -> None:
    check_ports(values, ("grpc-port", "grpc-health-port", "metrics-port"))
    check_sources(values)
    check_durations(values, FLAGS, ("drain-timeout",))
    check_ranges(
        values,
        (
            ("max-request-body", 1, MAX_REQUEST_BODY),
            ("usage-journal-size", MIN_JOURNAL_BYTES, MAX_JOURNAL_BYTES),
            ("decision-log-size", 0, MAX_DECISION_LOG),
            ("v", 0, MAX_VERBOSITY),
        ),
    )
    if values["explain-header"] not in EXPLAIN_HEADER_MODES:
        modes = ", ".join(EXPLAIN_HEADER_MODES)
        raise ConfigError(f"{values['explain-header']!r} is unknown; use {modes}", path="--explain-header")
    if values["xds-server"] and values["objects-file"]:
        raise ConfigError("excludes --objects-file; objects come from one place", path="--xds-server")


def _share(values: Mapping[str, Any], name: str) -> float:
    text = values[name]
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise ConfigError(f"{text!r} is not a share; use a number from 0 to 1", path=f"--{name}")
    return share


def _warnings(given: Mapping[str, Any]) -> list[str]:
    """What was asked for explicitly and has no effect."""
    return [
        f"--{name} has no effect: {text}"
        for name, text in _NO_EFFECT.items()
        if given.get(name) and not (name == "pool-namespace" and given.get("objects-file"))
    ]
