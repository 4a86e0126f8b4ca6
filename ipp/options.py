"""The flags of ``pointsman ipp``: llm-d's names, spelling and defaults, and a few of our own.

``parse_args`` turns an argument list into ``IppOptions`` or raises a ``ConfigError`` that names the flag.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dataplane import valkey
from dataplane.errors import ConfigError
from dataplane.flags import Flag, Kind, parse_flags
from dataplane.process_flags import (
    LOG_FLAGS,
    MAX_VERBOSITY,
    METRICS_TLS_FLAGS,
    NO_EFFECT,
    TLS_FLAGS,
    XDS_FLAGS,
    check_durations,
    check_ports,
    check_ranges,
    check_sources,
    check_xds,
    log_level,
    message_size,
    valkey_url,
)

MAX_BODY: Final = 1 << 30

FLAGS: Final[tuple[Flag, ...]] = (
    Flag("grpc-port", Kind.NUMBER, "9004", "port of the ext_proc service"),
    Flag("grpc-health-port", Kind.NUMBER, "9005", "port of the gRPC health service"),
    Flag("metrics-port", Kind.NUMBER, "9090", "HTTP port of metrics and debug pages"),
    Flag("host", Kind.TEXT, "", "address to listen on; empty = all"),
    Flag("metrics-host", Kind.TEXT, "", "address of the metrics port; empty = that of --host"),
    Flag("grpc-socket", Kind.TEXT, "", "Unix socket for the ext_proc service, instead of --grpc-port"),
    Flag("name", Kind.TEXT, "ipp", "name of the processor, by which a control plane knows its configuration"),
    Flag("config-file", Kind.TEXT, "", "file with the PayloadProcessorConfig; neither = built-in default"),
    Flag("config-text", Kind.TEXT, "", "the PayloadProcessorConfig itself"),
    Flag("watch-config", Kind.SWITCH, "true", "take a changed --config-file without a restart"),
    Flag("policies-file", Kind.TEXT, "", "file or folder with GuardrailPolicies, watched"),
    Flag("xds-server", Kind.TEXT, "", "host:port of a control plane that sends configuration and policies"),
    *XDS_FLAGS,
    Flag("allow-experimental-plugins", Kind.SWITCH, "false", "accept plugins of Alpha stability"),
    Flag("external-plugins", Kind.SWITCH, "true", "load the plugins of installed packages"),
    Flag("drain-timeout", Kind.DURATION, "30s", "how long running streams may finish after SIGTERM"),
    Flag("request-timeout", Kind.DURATION, "60s", "deadline of the request phase; over it 504"),
    Flag("max-request-body", Kind.QUANTITY, "16Mi", "largest request body; over it 413"),
    Flag("grpc-max-recv-msg-size", Kind.TEXT, "", "largest gRPC message received; empty = 16Mi"),
    Flag("valkey-url", Kind.TEXT, "", "Valkey for verdicts of guardrails; empty = $VALKEY_URL, or none"),
    Flag("health-checking", Kind.SWITCH, "false", "answer health checks on the ext_proc port as well"),
    Flag("enable-pprof", Kind.SWITCH, "true", "no effect: see /debug/config"),
    Flag("tracing", Kind.SWITCH, "true", "no effect: spans are the picker's"),
    *TLS_FLAGS,
    *METRICS_TLS_FLAGS,
    *LOG_FLAGS,
)

_NO_EFFECT: Final = {
    **NO_EFFECT,
    "enable-pprof": "the processor has no profiler",
    "tracing": "spans of a request are the picker's",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IppOptions:
    """What the flags say, checked. Times in seconds, sizes in bytes; names are those of the flags."""

    grpc_port: int = 9004
    """0 = any free port; so for the other ports."""
    grpc_health_port: int = 9005
    metrics_port: int = 9090
    host: str = ""
    metrics_host: str = ""
    grpc_socket: str = ""
    name: str = "ipp"
    config_file: str = ""
    config_text: str = ""
    watch_config: bool = True
    policies_file: str = ""
    xds_server: str = ""
    xds_token_file: str = ""
    xds_ca: str = ""
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
    valkey_url: str = ""
    health_checking: bool = False
    secure_serving: bool = True
    cert_path: str = ""
    enable_cert_reload: bool = False
    tls_min_version: str = ""
    tls_cipher_suites: tuple[str, ...] = ()
    metrics_cert_dir: str = ""
    metrics_client_ca_file: str = ""
    log_level: int = logging.INFO
    log_json: bool = False
    warnings: tuple[str, ...] = ()
    """What to say once there is a log."""

    @property
    def node_id(self) -> str:
        """What this processor calls itself, to the control plane and in telemetry."""
        return self.xds_node_id or f"{socket.gethostname()}-{self.grpc_port or os.getpid()}"

    def shown(self) -> dict[str, Any]:
        """The options as JSON-able data under the flags' names."""
        fields = dataclasses.asdict(self)
        fields["valkey_url"] = valkey.without_password(self.valkey_url)
        fields["log_level"] = logging.getLevelName(self.log_level)
        return {name.replace("_", "-"): value for name, value in fields.items() if name != "warnings"}


def parse_args(argv: Sequence[str]) -> IppOptions:
    """Options from flags. ``ConfigError`` names the wrong flag.

    ``--plugin TYPE:NAME[:JSON]``, once per plugin, is the configuration of processors of former releases.
    """
    words, plugins = _plugin_flags(argv)
    given = parse_flags(FLAGS, words)
    values = {flag.name: flag.read(flag.default) for flag in FLAGS} | given
    if plugins:
        if values["config-file"] or values["config-text"]:
            raise ConfigError("excludes --config-file and --config-text", path="--plugin")
        values["config-text"] = _config_of(plugins)
    check_ports(values, ("grpc-port", "grpc-health-port", "metrics-port"))
    check_sources(values)
    check_durations(values, FLAGS, ("drain-timeout",))
    check_ranges(values, (("max-request-body", 1, MAX_BODY), ("v", 0, MAX_VERBOSITY)))
    clear = check_xds(values)
    if values["xds-server"] and values["policies-file"]:
        raise ConfigError("excludes --policies-file; policies come from one place", path="--xds-server")
    if not values["name"]:
        raise ConfigError("is empty; give the processor a name", path="--name")
    derived = {
        "metrics-host": values["metrics-host"] or values["host"],
        "valkey-url": valkey_url(values),
        "grpc-max-recv-msg-size": message_size(values, "grpc-max-recv-msg-size"),
        "log-level": log_level(given, values),
        "log-json": values["zap-encoder"] == "json",
        "warnings": (
            *(f"--{name} has no effect: {text}" for name, text in _NO_EFFECT.items() if given.get(name)),
            *clear,
        ),
    }
    merged = {name.replace("-", "_"): value for name, value in (values | derived).items()}
    return IppOptions(**{field.name: merged[field.name] for field in dataclasses.fields(IppOptions)})


def _plugin_flags(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words without ``--plugin`` flags, and the values of those."""
    words: list[str] = []
    found: list[str] = []
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not word.startswith("-") or name != "plugin":
            words.append(word)
            continue
        text = value if equals else next(rest, None)
        if text is None:
            raise ConfigError("needs a value: TYPE:NAME or TYPE:NAME:JSON", path="--plugin")
        found.append(text)
    return words, found


def _config_of(plugins: Sequence[str]) -> str:
    """The configuration that ``--plugin`` flags come to: one profile that runs all of them on requests."""
    specs: list[dict[str, Any]] = []
    for text in plugins:
        plugin_type, _, rest = text.partition(":")
        name, _, parameters = rest.partition(":")
        if not plugin_type or not name:
            raise ConfigError(f"{text[:60]!r} is not TYPE:NAME or TYPE:NAME:JSON", path="--plugin")
        spec: dict[str, Any] = {"type": plugin_type, "name": name}
        if parameters.strip():
            try:
                spec["parameters"] = json.loads(parameters)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"the parameters of {name} are no JSON: {error}", path="--plugin") from None
        specs.append(spec)
    request = [{"pluginRef": spec["name"]} for spec in specs]
    return json.dumps(
        {
            "apiVersion": "llm-d.ai/v1alpha1",
            "kind": "PayloadProcessorConfig",
            "plugins": specs,
            "profiles": [{"name": "default", "plugins": {"request": request}}],
        }
    )
