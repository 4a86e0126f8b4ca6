"""What all data sources have in common that are polled per endpoint over HTTP or HTTPS.

A source says where, how and how often; the scraper does the fetching, with its limits on time, header and
body. Certificates are read once, when the plugin is built, so that a wrong path is an error of the
configuration and not of the first poll.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from dataplane.errors import ConfigError
from dataplane.plugin.base import PluginParams, TypedName
from dataplane.units import parse_duration
from epp.interfaces.data_layer import Extractor
from epp.interfaces.endpoint import Endpoint

PROMETHEUS_TEXT = "prometheus-text"
"""Payload of sources that deliver a Prometheus text."""
PROMETHEUS_MEDIA_TYPE = "text/plain;version=0.0.4"


class HttpSourceParams(PluginParams, frozen=True):
    """Parameters that all of them have."""

    scheme: Literal["http", "https"] = "http"
    """Protocol of the port that is polled."""
    insecure_skip_verify: bool = True
    """With https: accept any server certificate."""
    ca_cert_path: str = ""
    """With https: PEM file of the authorities to trust; empty = the system's."""
    client_cert_path: str = ""
    """With https: PEM file of the certificate to present."""
    client_key_path: str = ""
    """With https: PEM file of that certificate's key."""
    interval: str = "0s"
    """Time between two polls of an endpoint, such as 200ms; 0s = as often as makes sense."""


class HttpSource:
    """A source whose subclass says at which address an endpoint is polled."""

    payload: ClassVar[str] = PROMETHEUS_TEXT
    accept: ClassVar[str] = PROMETHEUS_MEDIA_TYPE
    min_interval_s: ClassVar[float] = 0.0
    """Least time between two polls, because what is polled does not change faster or costs its server."""

    def __init__(self, name: TypedName, params: HttpSourceParams, path: str) -> None:
        self.name = name
        self.scheme: str = params.scheme
        self.path = _checked_path(path)
        self.extractors: Sequence[Extractor] = ()
        self.warnings: list[str] = []
        self.interval_s = self._interval(params.interval)
        self._tls = _context(params)

    def tls(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        """Context for https, None for http."""
        return self._tls

    def bind(self, extractors: Sequence[Extractor]) -> None:
        """Feed these extractors."""
        self.extractors = tuple(extractors)

    def _interval(self, text: str) -> float:
        interval_s = _checked_interval(text)
        if 0 < interval_s < self.min_interval_s:
            self.warnings.append(
                f"interval {text} is shorter than makes sense, {self.min_interval_s:g} s is used instead"
            )
        return max(interval_s, self.min_interval_s)


def checked_port(port: int, zero: str) -> int:
    """A port number; ``zero`` says what 0 stands for, empty = it is refused. ``ConfigError`` at ``port``."""
    if not (0 if zero else 1) <= port <= 65535:
        otherwise = f", or 0 for {zero}" if zero else ""
        raise ConfigError(f"{port} is not a port; use 1 to 65535{otherwise}", path="port")
    return port


def _checked_path(path: str) -> str:
    if not path.startswith("/") or not path.isascii() or any(c <= " " or c == "\x7f" for c in path):
        raise ConfigError(
            f"{path!r} is not a path; start it with / and percent-encode blanks and other characters",
            path="path",
        )
    return path


def _checked_interval(text: str) -> float:
    try:
        interval_s = parse_duration(text)
    except ValueError as error:
        raise ConfigError(str(error), path="interval") from error
    if interval_s < 0:
        raise ConfigError(
            f"{text!r} is negative; use 0s for the refresh interval of the process", path="interval"
        )
    return interval_s


def _context(params: HttpSourceParams) -> ssl.SSLContext | None:
    tls_fields = {
        "caCertPath": params.ca_cert_path,
        "clientCertPath": params.client_cert_path,
        "clientKeyPath": params.client_key_path,
    }
    if params.scheme == "http":
        for field, value in tls_fields.items():
            if value:
                raise ConfigError(
                    "has no effect with scheme http; set scheme: https or remove it", path=field
                )
        return None
    return https_context(params)


def https_context(params: HttpSourceParams) -> ssl.SSLContext:
    """How to connect by https. ``ConfigError`` when a certificate cannot be had."""
    context = ssl.create_default_context()
    if params.ca_cert_path:
        _load(lambda: context.load_verify_locations(params.ca_cert_path), "caCertPath", params.ca_cert_path)
    if params.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if bool(params.client_cert_path) != bool(params.client_key_path):
        absent = "clientKeyPath" if params.client_cert_path else "clientCertPath"
        raise ConfigError(
            "clientCertPath and clientKeyPath belong together; give both or neither", path=absent
        )
    if params.client_cert_path:
        _load(
            lambda: context.load_cert_chain(params.client_cert_path, params.client_key_path),
            "clientCertPath",
            params.client_cert_path,
        )
    return context


def _load(load: Callable[[], None], field: str, file: str) -> None:
    """Run ``load``; ``ConfigError`` at ``field`` when ``file`` cannot be read or holds something else."""
    try:
        load()
    except ssl.SSLError as error:
        what = error.reason or str(error)
        raise ConfigError(f"{file} does not hold what it should in PEM form ({what})", path=field) from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror or error})", path=field) from error
