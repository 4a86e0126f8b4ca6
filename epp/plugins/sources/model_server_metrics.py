"""Fetch each endpoint's Prometheus text over HTTP or HTTPS."""

from __future__ import annotations

import ssl
from typing import ClassVar

from dataplane.addresses import host_port
from dataplane.plugin.base import PluginInfo, Stability, TypedName
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle
from epp.plugins.client_tls import ClientTls
from epp.plugins.http_source import HttpSource, HttpSourceParams, checked_port


class ModelServerMetricsParams(HttpSourceParams, frozen=True):
    """Parameters of ``metrics-data-source``."""

    path: str = "/metrics"
    """Path, with a query if needed."""
    port: int = 0
    """Metrics port of endpoints for which discovery names none; 0 = the port that serves requests."""


class ModelServerMetricsSource(HttpSource):
    """A source of Prometheus texts."""

    info: ClassVar[PluginInfo] = PluginInfo("metrics-data-source", ModelServerMetricsParams, Stability.BETA)

    def __init__(self, name: TypedName, params: ModelServerMetricsParams, handle: Handle) -> None:
        super().__init__(name, params, params.path)
        self._port = checked_port(params.port, "the endpoint's")
        self._params = params

    def authority(self, endpoint: Endpoint) -> str:
        """``host:port`` of the endpoint's metrics: what discovery says of it precedes ``port``."""
        spec = endpoint.spec
        if spec.metrics_host:
            return spec.metrics_host
        return host_port(spec.address, self._port) if self._port else spec.key

    def tls(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        """Context for https, None for http: what discovery says of the endpoint precedes ``scheme``."""
        if (endpoint.spec.metrics_scheme or self.scheme) == "http":
            return None
        if self._client_tls is None:
            self._client_tls = ClientTls(self._params)
        return self._client_tls.context
