"""The flags of ``pointsman ipp``: llm-d's names, spelling and defaults, and a few of our own.

``parse_args`` turns an argument list into ``IppOptions`` or raises a ``ConfigError`` that names the flag.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
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

MAX_BODY: Final = 1 << 30

FLAGS: Final[tuple[Flag, ...]] = (
    Flag("grpc-port", Kind.NUMBER, "9004", "port of the ext_proc service"),
    Flag("grpc-health-port", Kind.NUMBER, "9005", "port of the gRPC health service"),
    *ADDRESS_FLAGS,
    Flag("name", Kind.TEXT, "ipp", "name of the processor, by which a control plane knows its configuration"),
    *config_flags("PayloadProcessorConfig"),
    Flag("policies-file", Kind.TEXT, "", "file or folder with GuardrailPolicies, watched"),
    *xds_flags("configuration and policies"),
    *PLUGIN_FLAGS,
    *REQUEST_FLAGS,
    Flag("valkey-url", Kind.TEXT, "", "Valkey for verdicts and telemetry; empty = $VALKEY_URL, or none"),
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
class IppOptions(ProcessOptions):
    """What the flags say, checked. Times in seconds, sizes in bytes; names are those of the flags."""

    grpc_port: int = 9004
    grpc_health_port: int = 9005
    name: str = "ipp"
    policies_file: str = ""

    @property
    def node_id(self) -> str:
        """What this processor calls itself, to the control plane and in telemetry."""
        return self.xds_node_id or f"{socket.gethostname()}-{self.grpc_port or os.getpid()}"


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
    warnings = [f"--{name} has no effect: {text}" for name, text in _NO_EFFECT.items() if given.get(name)]
    return options_of(IppOptions, given, values, valkey_url=valkey_url(values), warnings=(*warnings, *clear))


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
