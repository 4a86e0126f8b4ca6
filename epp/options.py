"""The flags of ``pointsman epp``: llm-d's names, spelling and defaults, and a few of our own.

``parse_args`` turns an argument list into ``EppOptions`` or raises a ``ConfigError`` that names the flag.
Flags whose machinery this build does not have are accepted where that changes nothing, and refused or warned
of where it would (``docs/reference/epp-flags.md`` says which and why). Warnings are kept in the options,
because there is no log yet when they arise.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dataplane import valkey
from dataplane.errors import ConfigError
from dataplane.flags import Flag, Kind, parse_flags
from dataplane.observability.logs import TRACE, level_of_verbosity

MIN_REFRESH_S: Final = 0.05
MAX_REQUEST_BODY: Final = 1 << 30
MAX_DECISION_LOG: Final = 100_000
MIN_JOURNAL_BYTES: Final = 2 << 20
MAX_JOURNAL_BYTES: Final = 1 << 40
NODE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,253}", re.ASCII)

MAX_SOCKET_PATH: Final = 107
"""Bytes of a Unix socket's path that the system takes."""

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
    "metrics-endpoint-auth": "tokens are not reviewed, and metrics and debug pages are served to everybody "
    "who reaches the port; restrict it with --metrics-client-ca-file, --metrics-host or a network policy",
    "grpc-max-send-msg-size": "no message the picker sends is larger than 64 KiB",
    "pool-namespace": "it says which documents of --objects-file count, and there is no such file",
    "zap-stacktrace-level": "tracebacks come with every exception",
    "zap-time-encoding": "times are RFC 3339",
}
"""Flags that are warned of when they ask for something explicitly."""

FLAGS: Final[tuple[Flag, ...]] = (
    Flag("grpc-port", Kind.NUMBER, "9002", "port of the ext_proc service"),
    Flag("grpc-health-port", Kind.NUMBER, "9003", "port of the gRPC health service"),
    Flag("metrics-port", Kind.NUMBER, "9090", "HTTP port of metrics and debug pages"),
    Flag("host", Kind.TEXT, "", "address to listen on; empty = all"),
    Flag("metrics-host", Kind.TEXT, "", "address of the metrics port; empty = that of --host"),
    Flag("grpc-socket", Kind.TEXT, "", "Unix socket for the ext_proc service, instead of --grpc-port"),
    Flag("pool-name", Kind.TEXT, "", "name of the pool; empty = epp"),
    Flag("pool-namespace", Kind.TEXT, "", "namespace whose objects count; empty = every one"),
    Flag("pool-group", Kind.TEXT, "inference.networking.k8s.io", "API group by which objects name the pool"),
    Flag("endpoint-selector", Kind.TEXT, "", "pod labels; refused, this build watches no Kubernetes"),
    Flag("endpoint-target-ports", Kind.LIST, "", "ports of selected pods; refused, see --endpoint-selector"),
    Flag("config-file", Kind.TEXT, "", "file with the EndpointPickerConfig; neither = built-in default"),
    Flag("config-text", Kind.TEXT, "", "the EndpointPickerConfig itself"),
    Flag("watch-config", Kind.SWITCH, "true", "take a changed --config-file without a restart"),
    Flag("objects-file", Kind.TEXT, "", "file or folder with objectives and model rewrites, watched"),
    Flag("xds-server", Kind.TEXT, "", "host:port of a control plane that sends objects and configuration"),
    Flag("xds-token-file", Kind.TEXT, "", "file with the API token for the control plane"),
    Flag("xds-ca", Kind.TEXT, "", "authorities of the control plane's certificate, PEM; empty = no TLS"),
    Flag("xds-cert", Kind.TEXT, "", "certificate shown to the control plane, PEM file"),
    Flag("xds-key", Kind.TEXT, "", "its key, PEM file"),
    Flag("xds-cache", Kind.TEXT, "", "file that keeps what the control plane sent last"),
    Flag("xds-node-id", Kind.TEXT, "", "name towards the control plane; empty = host name and port"),
    Flag("endpoints-file", Kind.TEXT, "", "file with the endpoints, watched; instead of dataLayer.discovery"),
    Flag("allow-experimental-plugins", Kind.SWITCH, "false", "accept plugins of Alpha stability"),
    Flag("external-plugins", Kind.SWITCH, "true", "load the plugins of installed packages"),
    Flag("ha-enable-leader-election", Kind.SWITCH, "false", "leader election; refused, not in this build"),
    Flag("drain-timeout", Kind.DURATION, "30s", "how long running streams may finish after SIGTERM"),
    Flag("request-timeout", Kind.DURATION, "60s", "deadline of the request phase; over it 504"),
    Flag("max-request-body", Kind.QUANTITY, "16Mi", "largest request body; over it 413"),
    Flag("grpc-max-recv-msg-size", Kind.TEXT, "", "largest gRPC message received; empty = 16Mi"),
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
    Flag("secure-serving", Kind.SWITCH, "true", "TLS on the ext_proc port"),
    Flag("cert-path", Kind.TEXT, "", "folder with tls.crt and tls.key; empty = self-signed"),
    Flag("enable-cert-reload", Kind.SWITCH, "false", "take a changed certificate without a restart"),
    Flag("tls-min-version", Kind.TEXT, "", "VersionTLS12 or VersionTLS13; older ones mean 1.2"),
    Flag("tls-cipher-suites", Kind.LIST, "", "IANA names of cipher suites, by comma"),
    Flag("metrics-endpoint-auth", Kind.SWITCH, "true", "token review; no effect, there is none"),
    Flag("metrics-cert-dir", Kind.TEXT, "", "folder with tls.crt and tls.key of the metrics port"),
    Flag("metrics-client-ca-file", Kind.TEXT, "", "authorities of clients of the metrics port; PEM file"),
    Flag("enable-grpc-stream-metrics", Kind.SWITCH, "false", "count ext_proc streams"),
    Flag("legacy-metrics", Kind.SWITCH, "false", "expose metrics under their former names as well"),
    Flag("v", Kind.NUMBER, "2", "verbosity: 2 normal, 3 verbose, 4 debug, 5 trace", short="v"),
    Flag("zap-devel", Kind.SWITCH, "false", "log text at debug level"),
    Flag("zap-encoder", Kind.TEXT, "console", "log format: console or json"),
    Flag("zap-log-level", Kind.TEXT, "", "debug, info, error, panic or a number; wins over -v"),
    Flag("zap-stacktrace-level", Kind.TEXT, "", "no effect: tracebacks come with every exception"),
    Flag("zap-time-encoding", Kind.TEXT, "", "no effect: times are RFC 3339"),
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
class EppOptions:
    """What the flags say, checked. Times in seconds, sizes in bytes; names are those of the flags."""

    grpc_port: int = 9002
    """0 = any free port; so for the other ports."""
    grpc_health_port: int = 9003
    metrics_port: int = 9090
    host: str = ""
    """Empty = all addresses."""
    metrics_host: str = ""
    grpc_socket: str = ""
    """When set, ext_proc listens there and not on ``grpc_port``."""
    pool_name: str = "epp"
    pool_namespace: str = ""
    pool_group: str = "inference.networking.k8s.io"
    config_file: str = ""
    config_text: str = ""
    watch_config: bool = True
    endpoints_file: str = ""
    objects_file: str = ""
    xds_server: str = ""
    """When set, the objects come from there."""
    xds_token_file: str = ""
    xds_ca: str = ""
    """When set, the control plane is spoken to over TLS."""
    xds_cert: str = ""
    xds_key: str = ""
    xds_cache: str = ""
    xds_node_id: str = ""
    allow_experimental_plugins: bool = False
    external_plugins: bool = True
    drain_timeout: float = 30.0
    request_timeout: float = 60.0
    max_request_body: int = 16 << 20
    grpc_max_recv_msg_size: int | None = None
    """None = the transport's default."""
    disable_endpoint_subset_filter: bool = False
    emit_endpoint_scores: bool = False
    decision_log_size: int = 200
    explain_sampling: float = 0.01
    """Share of decisions that are traced."""
    explain_header: str = "off"
    """off: the header is ignored; id: its requests are traced; full: and the response shows endpoints."""
    valkey_url: str = ""
    usage_journal: str = ""
    """When set, usage is recorded there and delivered to Valkey."""
    usage_journal_size: int = 256 << 20
    refresh_metrics_interval: float = 0.05
    metrics_staleness_threshold: float = 2.0
    tracing: bool = True
    enable_pprof: bool = True
    health_checking: bool = False
    secure_serving: bool = True
    cert_path: str = ""
    enable_cert_reload: bool = False
    tls_min_version: str = ""
    tls_cipher_suites: tuple[str, ...] = ()
    metrics_cert_dir: str = ""
    """When set, the metrics port speaks TLS."""
    metrics_client_ca_file: str = ""
    """When set, it serves clients with a certificate of these authorities only."""
    enable_grpc_stream_metrics: bool = False
    legacy_metrics: bool = False
    log_level: int = logging.INFO
    log_json: bool = False
    warnings: tuple[str, ...] = ()
    """What to say once there is a log."""

    def shown(self) -> dict[str, Any]:
        """The options as JSON-able data under the flags' names."""
        fields = dataclasses.asdict(self)
        fields["valkey_url"] = valkey.without_password(self.valkey_url)
        fields["log_level"] = logging.getLevelName(self.log_level)
        return {name.replace("_", "-"): value for name, value in fields.items() if name != "warnings"}


def parse_args(argv: Sequence[str]) -> EppOptions:
    """Options from flags. ``ConfigError`` names the wrong flag."""
    given = parse_flags(FLAGS, argv)
    values = {flag.name: flag.read(flag.default) for flag in FLAGS if not flag.removed} | given
    _refuse_absent(values)
    _check_ports(values)
    _check_values(values)
    _check_xds(values)
    values["valkey-url"] = _valkey_url(values)
    warnings = _warnings(given)
    if values["xds-token-file"] and not values["xds-ca"] and not _is_here(values["xds-server"]):
        warnings.append("without --xds-ca the token for the control plane travels in clear")
    interval = values["refresh-metrics-interval"]
    if interval < MIN_REFRESH_S:
        warnings.append(
            f"--refresh-metrics-interval={interval:g}s is raised to its minimum of {MIN_REFRESH_S:g}s"
        )
    level, as_json = _logging(given, values)
    derived = {
        "metrics-host": values["metrics-host"] or values["host"],
        "pool-name": values["pool-name"] or "epp",
        "refresh-metrics-interval": max(interval, MIN_REFRESH_S),
        "explain-sampling": _share(values, "explain-sampling"),
        "grpc-max-recv-msg-size": _message_size(values, "grpc-max-recv-msg-size"),
        "log-level": level,
        "log-json": as_json,
        "warnings": tuple(warnings),
    }
    merged = {name.replace("-", "_"): value for name, value in (values | derived).items()}
    return EppOptions(**{field.name: merged[field.name] for field in dataclasses.fields(EppOptions)})


def _refuse_absent(values: Mapping[str, Any]) -> None:
    """``ConfigError`` for flags that ask for what this build does not have."""
    for name, reason in _ABSENT.items():
        if values[name]:
            raise ConfigError(reason, path=f"--{name}")


def _check_ports(values: Mapping[str, Any]) -> None:
    names = ["grpc-port", "grpc-health-port", "metrics-port"]
    if values["grpc-socket"]:
        names.remove("grpc-port")
        if len(os.fsencode(values["grpc-socket"])) > MAX_SOCKET_PATH:
            raise ConfigError(
                f"is longer than {MAX_SOCKET_PATH} bytes, the most a socket may have", path="--grpc-socket"
            )
    taken: dict[int, str] = {}
    for name in names:
        port = values[name]
        if not 0 <= port <= 65535:
            raise ConfigError(
                f"{port} is not a port; use 1 to 65535, or 0 for any free one", path=f"--{name}"
            )
        if port and port in taken:
            raise ConfigError(f"{port} is also --{taken[port]}; the ports must differ", path=f"--{name}")
        taken[port] = name


def _check_values(values: Mapping[str, Any]) -> None:
    if values["config-file"] and values["config-text"]:
        raise ConfigError("excludes --config-text; give one of them", path="--config-file")
    if values["metrics-client-ca-file"] and not values["metrics-cert-dir"]:
        raise ConfigError(
            "needs --metrics-cert-dir: certificates are shown over TLS only", path="--metrics-client-ca-file"
        )
    for name in (flag.name for flag in FLAGS if flag.kind is Kind.DURATION):
        seconds = values[name]
        if seconds < 0 or (seconds == 0 and name != "drain-timeout"):
            range_ = "0s or more" if name == "drain-timeout" else "more than 0s"
            raise ConfigError(f"{seconds:g}s is out of range; use {range_}", path=f"--{name}")
    for name, least, most in (
        ("max-request-body", 1, MAX_REQUEST_BODY),
        ("usage-journal-size", MIN_JOURNAL_BYTES, MAX_JOURNAL_BYTES),
        ("decision-log-size", 0, MAX_DECISION_LOG),
        ("v", 0, 10),
    ):
        if not least <= values[name] <= most:
            raise ConfigError(f"{values[name]} is out of range; use {least} to {most}", path=f"--{name}")
    if values["explain-header"] not in EXPLAIN_HEADER_MODES:
        modes = ", ".join(EXPLAIN_HEADER_MODES)
        raise ConfigError(f"{values['explain-header']!r} is unknown; use {modes}", path="--explain-header")
    if values["zap-encoder"] not in {"console", "json"}:
        raise ConfigError(
            f"{values['zap-encoder']!r} is no log format; use console or json", path="--zap-encoder"
        )


def _check_xds(values: Mapping[str, Any]) -> None:
    server = values["xds-server"]
    if server and values["objects-file"]:
        raise ConfigError("excludes --objects-file; objects come from one place", path="--xds-server")
    names = ("token-file", "ca", "cert", "key", "cache", "node-id")
    for name in (f"xds-{name}" for name in names):
        if values[name] and not server:
            raise ConfigError("needs --xds-server, the control plane it is meant for", path=f"--{name}")
    for name, other in (("xds-cert", "xds-key"), ("xds-key", "xds-cert"), ("xds-cert", "xds-ca")):
        if values[name] and not values[other]:
            raise ConfigError(f"needs --{other}", path=f"--{name}")
    host, colon, port = server.rpartition(":")
    if server and not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"{server!r} is not host:port", path="--xds-server")
    if values["xds-node-id"] and not NODE_ID.fullmatch(values["xds-node-id"]):
        raise ConfigError("may have letters, digits and . _ : -, at most 253", path="--xds-node-id")


def _valkey_url(values: Mapping[str, Any]) -> str:
    """The address of Valkey, from the flag or the environment."""
    flag, variable = "--valkey-url", valkey.VARIABLE
    given = values["valkey-url"]
    url = valkey.address(given or os.environ.get(variable, ""), flag if given else variable)
    if values["usage-journal"] and not url:
        raise ConfigError(f"needs {flag} or {variable}, where its records go", path="--usage-journal")
    return url


def _is_here(server: str) -> bool:
    """Whether an address is of this machine's loopback."""
    host = server.rpartition(":")[0].strip("[]")
    return host in {"localhost", "::1"} or host.startswith("127.")


def _share(values: Mapping[str, Any], name: str) -> float:
    text = values[name]
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise ConfigError(f"{text!r} is not a share; use a number from 0 to 1", path=f"--{name}")
    return share


def _message_size(values: Mapping[str, Any], name: str) -> int | None:
    text = values[name]
    if not text:
        return None
    size: int = Flag(name, Kind.QUANTITY, "", "").read(text)
    if not 0 < size < 1 << 31:
        raise ConfigError(f"{text!r} is out of range; use 1 to {(1 << 31) - 1} bytes", path=f"--{name}")
    return size


def _warnings(given: Mapping[str, Any]) -> list[str]:
    """What was asked for explicitly and has no effect."""
    return [
        f"--{name} has no effect: {text}"
        for name, text in _NO_EFFECT.items()
        if given.get(name) and not (name == "pool-namespace" and given.get("objects-file"))
    ]


def _logging(given: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[int, bool]:
    """Level and whether the format is JSON."""
    level = level_of_verbosity(values["v"])
    if values["zap-devel"] and "v" not in given:
        level = logging.DEBUG
    name = values["zap-log-level"]
    if name:
        levels = {
            "debug": logging.DEBUG,
            "info": logging.INFO,
            "error": logging.ERROR,
            "panic": logging.CRITICAL,
        }
        if name.isascii() and name.isdigit() and len(name) == 1 and name != "0":
            level = logging.DEBUG if name == "1" else TRACE
        elif name in levels:
            level = levels[name]
        else:
            raise ConfigError(
                f"{name!r} is no log level; use debug, info, error, panic or 1 to 9", path="--zap-log-level"
            )
    return level, values["zap-encoder"] == "json"
