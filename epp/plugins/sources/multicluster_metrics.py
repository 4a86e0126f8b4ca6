"""Fetch the metrics of the pickers that other clusters' endpoints stand for.

Each endpoint is the way into another cluster, whose picker exposes the averages of its pool. Where these
are, labels of the endpoint say; without them they are asked for at the endpoint's own address.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from dataplane.addresses import host_port
from dataplane.plugin.base import PluginInfo, Stability, TypedName
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle
from epp.plugins.http_source import HttpSource, HttpSourceParams, checked_port

ADDRESS_LABEL: Final = "metricsAddress"
"""Label of an endpoint: host name or IP address of the other picker's metrics."""
PORT_LABEL: Final = "metricsPort"
"""Label of an endpoint: their port."""


class MulticlusterMetricsParams(HttpSourceParams, frozen=True):
    """Parameters of ``multicluster-metrics-data-source``."""

    scheme: Literal["http", "https"] = "https"
    """Protocol of the metrics port."""
    path: str = "/metrics"
    """Path, with a query if needed."""
    port: int = 0
    """Metrics port of endpoints without the label; 0 = the endpoint's own."""


class MulticlusterMetricsSource(HttpSource):
    """A source of other pickers' Prometheus texts."""

    info: ClassVar[PluginInfo] = PluginInfo(
        "multicluster-metrics-data-source", MulticlusterMetricsParams, Stability.ALPHA
    )
    payload: ClassVar[str] = "picker-metrics"
    min_interval_s: ClassVar[float] = 1.0

    def __init__(self, name: TypedName, params: MulticlusterMetricsParams, handle: Handle) -> None:
        super().__init__(name, params, params.path)
        self._port = checked_port(params.port, "the endpoint's")

    def authority(self, endpoint: Endpoint) -> str:
        """``host:port`` of the other picker's metrics; empty when the labels make no sense."""
        spec = endpoint.spec
        address = spec.labels.get(ADDRESS_LABEL, "")
        port = spec.labels.get(PORT_LABEL, "")
        if not address and not port and not self._port:
            return spec.metrics_host or spec.key
        number = _port(port) if port else self._port or spec.port
        return host_port(address or spec.address, number) if number and _is_host(address) else ""


def _port(text: str) -> int:
    """A port number; 0 for text that is none."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    return number if number <= 65535 else 0


def _is_host(text: str) -> bool:
    """Whether a label may be a host name or an IP address, or is empty; it ends up in a request's head."""
    return text.isascii() and len(text) <= 253 and all(c.isalnum() or c in ".-_:" for c in text)
