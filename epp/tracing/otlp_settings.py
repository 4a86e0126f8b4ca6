"""Where and how spans are sent, as the standard ``OTEL_EXPORTER_OTLP_*`` variables say.

Each variable has a form for traces alone (``OTEL_EXPORTER_OTLP_TRACES_*``), which goes first.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Final, NamedTuple

from dataplane.errors import ConfigError

GRPC: Final = "grpc"
HTTP: Final = "http/protobuf"
DEFAULT_ENDPOINTS: Final = {GRPC: "http://localhost:4317", HTTP: "http://localhost:4318"}
TRACES_PATH: Final = "/v1/traces"
DEFAULT_TIMEOUT_MS: Final = 10_000.0
MAX_TIMEOUT_MS: Final = 600_000.0
COMPRESSIONS: Final = ("gzip", "none")

_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
_TRACES: Final = "OTEL_EXPORTER_OTLP_TRACES_"


class OtlpSettings(NamedTuple):
    """How to reach the collector."""

    protocol: str
    url: str
    """With HTTP the whole address, with gRPC scheme, host and port."""
    headers: dict[str, str]
    timeout_s: float
    compress: bool
    ca_file: str
    certificate_file: str
    key_file: str

    @property
    def is_secure(self) -> bool:
        """Whether by TLS."""
        return self.url.startswith("https://")


def read_otlp_settings(environment: Mapping[str, str], protocol: str) -> OtlpSettings:
    """Settings from the environment. ``ConfigError`` names the variable."""
    return OtlpSettings(
        protocol=protocol,
        url=_url(environment, protocol),
        headers=_headers(environment),
        timeout_s=_timeout_s(environment),
        compress=_compress(environment),
        ca_file=_value(environment, "CERTIFICATE")[1],
        certificate_file=_value(environment, "CLIENT_CERTIFICATE")[1],
        key_file=_value(environment, "CLIENT_KEY")[1],
    )


def _value(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable that counts, and its text; empty when neither is set."""
    for variable in (_TRACES + name, _PREFIX + name):
        if text := environment.get(variable, "").strip():
            return variable, text
    return _PREFIX + name, ""


def _url(environment: Mapping[str, str], protocol: str) -> str:
    variable, text = _value(environment, "ENDPOINT")
    url = text or DEFAULT_ENDPOINTS[protocol]
    if "://" not in url and protocol == GRPC:
        insecure = _value(environment, "INSECURE")[1].lower() == "true"
        url = f"{'http' if insecure else 'https'}://{url}"
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{text!r} is no http or https address", path=variable)
    if protocol == GRPC:
        default = 443 if parts.scheme == "https" else 80
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}:{parts.port or default}"
    return url if variable.startswith(_TRACES) else url.rstrip("/") + TRACES_PATH


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    variable, text = _value(environment, "HEADERS")
    found: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, value = entry.partition("=")
        name, value = (urllib.parse.unquote(side.strip()) for side in (name, value))
        if not separator or not name or not name.isascii() or not f"{name}{value}".isprintable():
            raise ConfigError("must be name=value pairs by comma, values percent-encoded", path=variable)
        found[name.lower()] = value
    return found


def _timeout_s(environment: Mapping[str, str]) -> float:
    variable, text = _value(environment, "TIMEOUT")
    try:
        milliseconds = float(text) if text else DEFAULT_TIMEOUT_MS
    except ValueError:
        milliseconds = 0.0
    if not 0 < milliseconds <= MAX_TIMEOUT_MS:
        raise ConfigError(f"{text!r} is no number of milliseconds up to {MAX_TIMEOUT_MS:g}", path=variable)
    return milliseconds / 1000


def _compress(environment: Mapping[str, str]) -> bool:
    variable, text = _value(environment, "COMPRESSION")
    if text and text not in COMPRESSIONS:
        raise ConfigError(f"{text!r} is not known; use {' or '.join(COMPRESSIONS)}", path=variable)
    return text == "gzip"
