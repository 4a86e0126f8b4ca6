"""What all data sources have in common that are polled per endpoint over HTTP or HTTPS.

A source says where, how and how often; the scraper does the fetching, with its limits on time, header and
body. Certificates are read when the plugin is built, so that a wrong path is an error of the configuration
and not of the first poll, and again when their files have changed.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import ClassVar

from dataplane.errors import ConfigError
from dataplane.plugin.base import TypedName
from dataplane.units import parse_duration
from epp.interfaces.data_layer import Extractor
from epp.interfaces.endpoint import Endpoint
from epp.plugins.client_tls import TlsParams, client_tls

PROMETHEUS_TEXT = "prometheus-text"
"""Payload of sources that deliver a Prometheus text."""
PROMETHEUS_MEDIA_TYPE = "text/plain;version=0.0.4"


class HttpSourceParams(TlsParams, frozen=True):
    """Parameters that all of them have."""

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
        self._client_tls = client_tls(params)

    def tls(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        """Context for https, None for http."""
        return None if self._client_tls is None else self._client_tls.context

    @property
    def certificate_files(self) -> Sequence[str]:
        """Files that are read again when they change."""
        return () if self._client_tls is None else self._client_tls.files

    def renew_certificates(self) -> bool:
        """Read changed files again; whether there were any. Blocks. ``ConfigError``: the old ones stay."""
        return self._client_tls is not None and self._client_tls.renew()

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
