"""Flags that every ext_proc process has alike, and what is checked of them; the names are llm-d's.

Each function takes the values by flag name and raises ``ConfigError`` at the flag that is wrong.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dataplane import valkey
from dataplane.errors import ConfigError
from dataplane.flags import Flag, Kind
from dataplane.observability.logs import TRACE, level_of_verbosity

NODE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,253}", re.ASCII)
MAX_SOCKET_PATH: Final = 107
"""Bytes of a Unix socket's path that the system takes."""

XDS_FLAGS: Final = (
    Flag("xds-token-file", Kind.TEXT, "", "file with the API token for the control plane"),
    Flag("xds-ca", Kind.TEXT, "", "authorities of the control plane's certificate, PEM; empty = no TLS"),
    Flag("xds-cert", Kind.TEXT, "", "certificate shown to the control plane, PEM file"),
    Flag("xds-key", Kind.TEXT, "", "its key, PEM file"),
    Flag("xds-cache", Kind.TEXT, "", "file that keeps what the control plane sent last"),
    Flag("xds-node-id", Kind.TEXT, "", "name towards the control plane; empty = host name and port"),
)
"""Beside ``xds-server``, whose help is the process's own."""

LOG_FLAGS: Final = (
    Flag("v", Kind.NUMBER, "2", "verbosity: 2 normal, 3 verbose, 4 debug, 5 trace", short="v"),
    Flag("zap-devel", Kind.SWITCH, "false", "log text at debug level"),
    Flag("zap-encoder", Kind.TEXT, "console", "log format: console or json"),
    Flag("zap-log-level", Kind.TEXT, "", "debug, info, error, panic or a number; wins over -v"),
    Flag("zap-stacktrace-level", Kind.TEXT, "", "no effect: tracebacks come with every exception"),
    Flag("zap-time-encoding", Kind.TEXT, "", "no effect: times are RFC 3339"),
)
MAX_VERBOSITY: Final = 10

TLS_FLAGS: Final = (
    Flag("secure-serving", Kind.SWITCH, "true", "TLS on the ext_proc port"),
    Flag("cert-path", Kind.TEXT, "", "folder with tls.crt and tls.key; empty = self-signed"),
    Flag("enable-cert-reload", Kind.SWITCH, "false", "take a changed certificate without a restart"),
    Flag("tls-min-version", Kind.TEXT, "", "VersionTLS12 or VersionTLS13; older ones mean 1.2"),
    Flag("tls-cipher-suites", Kind.LIST, "", "IANA names of cipher suites, by comma"),
)

METRICS_TLS_FLAGS: Final = (
    Flag("metrics-endpoint-auth", Kind.SWITCH, "true", "token review; no effect, there is none"),
    Flag("metrics-cert-dir", Kind.TEXT, "", "folder with tls.crt and tls.key of the metrics port"),
    Flag("metrics-client-ca-file", Kind.TEXT, "", "authorities of clients of the metrics port; PEM file"),
)

NO_EFFECT: Final = {
    "metrics-endpoint-auth": "tokens are not reviewed, and metrics and debug pages are served to everybody "
    "who reaches the port; restrict it with --metrics-client-ca-file, --metrics-host or a network policy",
    "zap-stacktrace-level": "tracebacks come with every exception",
    "zap-time-encoding": "times are RFC 3339",
}
"""Flags that are warned of when they ask for something explicitly."""


def check_ports(values: Mapping[str, Any], names: Sequence[str]) -> None:
    """Ports are ports and differ, but for any number of 0; a socket stands in the place of ``grpc-port``."""
    socket = values["grpc-socket"]
    if socket and len(os.fsencode(socket)) > MAX_SOCKET_PATH:
        raise ConfigError(
            f"is longer than {MAX_SOCKET_PATH} bytes, the most a socket may have", path="--grpc-socket"
        )
    taken: dict[int, str] = {}
    for name in names:
        if name == "grpc-port" and socket:
            continue
        port = values[name]
        if not 0 <= port <= 65535:
            raise ConfigError(
                f"{port} is not a port; use 1 to 65535, or 0 for any free one", path=f"--{name}"
            )
        if port and port in taken:
            raise ConfigError(f"{port} is also --{taken[port]}; the ports must differ", path=f"--{name}")
        taken[port] = name


def check_durations(values: Mapping[str, Any], flags: Iterable[Flag], may_be_none: Sequence[str]) -> None:
    """Durations are more than nothing, those of ``may_be_none`` at least nothing."""
    for name in (flag.name for flag in flags if flag.kind is Kind.DURATION):
        seconds = values[name]
        if seconds < 0 or (seconds == 0 and name not in may_be_none):
            range_ = "0s or more" if name in may_be_none else "more than 0s"
            raise ConfigError(f"{seconds:g}s is out of range; use {range_}", path=f"--{name}")


def check_ranges(values: Mapping[str, Any], ranges: Iterable[tuple[str, int, int]]) -> None:
    """Numbers lie between their least and most."""
    for name, least, most in ranges:
        if not least <= values[name] <= most:
            raise ConfigError(f"{values[name]} is out of range; use {least} to {most}", path=f"--{name}")


def check_sources(values: Mapping[str, Any]) -> None:
    """One configuration, and client certificates only where there is TLS."""
    if values["config-file"] and values["config-text"]:
        raise ConfigError("excludes --config-text; give one of them", path="--config-file")
    if values["metrics-client-ca-file"] and not values["metrics-cert-dir"]:
        raise ConfigError(
            "needs --metrics-cert-dir: certificates are shown over TLS only", path="--metrics-client-ca-file"
        )
    if values["zap-encoder"] not in {"console", "json"}:
        raise ConfigError(
            f"{values['zap-encoder']!r} is no log format; use console or json", path="--zap-encoder"
        )


def check_xds(values: Mapping[str, Any]) -> list[str]:
    """The flags of the control plane; what to warn of."""
    server = values["xds-server"]
    for name in (flag.name for flag in XDS_FLAGS):
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
    if values["xds-token-file"] and not values["xds-ca"] and not _is_here(server):
        return ["without --xds-ca the token for the control plane travels in clear"]
    return []


def _is_here(server: str) -> bool:
    """Whether an address is of this machine's loopback."""
    host = server.rpartition(":")[0].strip("[]")
    return host in {"localhost", "::1"} or host.startswith("127.")


def valkey_url(values: Mapping[str, Any], *, needed_by: str = "") -> str:
    """The address of Valkey, from the flag or the environment; ``needed_by`` is a flag that wants one."""
    flag, variable = "--valkey-url", valkey.VARIABLE
    given = values["valkey-url"]
    url = valkey.address(given or os.environ.get(variable, ""), flag if given else variable)
    if needed_by and values[needed_by] and not url:
        raise ConfigError(f"needs {flag} or {variable}, where its records go", path=f"--{needed_by}")
    return url


def message_size(values: Mapping[str, Any], name: str) -> int | None:
    """Bytes of a message; None = the transport's default."""
    text = values[name]
    if not text:
        return None
    size: int = Flag(name, Kind.QUANTITY, "", "").read(text)
    if not 0 < size < 1 << 31:
        raise ConfigError(f"{text!r} is out of range; use 1 to {(1 << 31) - 1} bytes", path=f"--{name}")
    return size


def log_level(given: Mapping[str, Any], values: Mapping[str, Any]) -> int:
    """The level of ``logging`` that the flags ask for."""
    level = level_of_verbosity(values["v"])
    if values["zap-devel"] and "v" not in given:
        level = logging.DEBUG
    name = values["zap-log-level"]
    levels = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR, "panic": logging.CRITICAL}
    if not name:
        return level
    if name.isascii() and name.isdigit() and len(name) == 1 and name != "0":
        return logging.DEBUG if name == "1" else TRACE
    if name not in levels:
        raise ConfigError(
            f"{name!r} is no log level; use debug, info, error, panic or 1 to 9", path="--zap-log-level"
        )
    return levels[name]
