"""Fetch each endpoint's Prometheus text over HTTP or HTTPS.

Says where and how often; the scraper does the fetching. Certificates are read once, when the plugin is built,
so that a wrong path is an error of the configuration and not of the first scrape.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from dataplane.addresses import host_port
from dataplane.errors import ConfigError
from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from dataplane.units import parse_duration
from epp.interfaces.data_layer import Extractor
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle


class ModelServerMetricsParams(PluginParams, frozen=True):
    """Parameters of ``metrics-data-source``."""

    scheme: Literal["http", "https"] = "http"
    """Protocol of the metrics port."""
    path: str = "/metrics"
    """Path, with a query if needed."""
    port: int = 0
    """Metrics port of endpoints for which discovery names none; 0 = the port that serves requests."""
    insecure_skip_verify: bool = True
    """With https: accept any server certificate."""
    ca_cert_path: str = ""
    """With https: PEM file of the authorities to trust; empty = the system's."""
    client_cert_path: str = ""
    """With https: PEM file of the certificate to present."""
    client_key_path: str = ""
    """With https: PEM file of that certificate's key."""
    interval: str = "0s"
    """Time between two scrapes of an endpoint, such as 200ms; 0s = the process's refresh interval."""


class ModelServerMetricsSource:
    """A source of Prometheus texts."""

    info: ClassVar[PluginInfo] = PluginInfo("metrics-data-source", ModelServerMetricsParams, Stability.BETA)
    payload: ClassVar[str] = "prometheus-text"
    accept: ClassVar[str] = "text/plain;version=0.0.4"

    def __init__(self, name: TypedName, params: ModelServerMetricsParams, handle: Handle) -> None:
        self.name = name
        self.scheme: str = params.scheme
        self.path = _checked_path(params.path)
        self.interval_s = _checked_interval(params.interval)
        self.extractors: Sequence[Extractor] = ()
        if not 0 <= params.port <= 65535:
            raise ConfigError(
                f"{params.port} is not a port; use 1 to 65535, or 0 for the endpoint's", path="port"
            )
        self._port = params.port
        self._tls = _context(params)

    def authority(self, endpoint: Endpoint) -> str:
        """``host:port`` of the endpoint's metrics: what discovery says of it precedes ``port``."""
        spec = endpoint.spec
        if spec.metrics_host:
            return spec.metrics_host
        return host_port(spec.address, self._port) if self._port else spec.key

    def tls(self) -> ssl.SSLContext | None:
        """Context for https, None for http."""
        return self._tls

    def bind(self, extractors: Sequence[Extractor]) -> None:
        """Feed these extractors."""
        self.extractors = tuple(extractors)


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


def _context(params: ModelServerMetricsParams) -> ssl.SSLContext | None:
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
