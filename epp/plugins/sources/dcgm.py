"""Fetch what the DCGM exporter beside each endpoint says of its GPUs.

The exporter runs once per node, so in most set-ups it is asked at the node's address, which discovery leaves
in an annotation of the endpoint; an endpoint without it is not polled and says so.
"""

from __future__ import annotations

from typing import ClassVar, Final

from dataplane.addresses import host_port
from dataplane.plugin.base import PluginInfo, Stability, TypedName
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle
from epp.plugins.http_source import HttpSource, HttpSourceParams, checked_port

NODE_ADDRESS: Final = "pointsman.dev/node-address"
"""Annotation of an endpoint: IP address of the node it runs on."""


class DcgmSourceParams(HttpSourceParams, frozen=True):
    """Parameters of ``dcgm-data-source``."""

    path: str = "/metrics"
    """Path of the exporter's text."""
    port: int = 9400
    """The exporter's port."""
    use_node_address: bool = False
    """Ask at the node's address instead of the endpoint's own."""


class DcgmSource(HttpSource):
    """A source of DCGM texts."""

    info: ClassVar[PluginInfo] = PluginInfo("dcgm-data-source", DcgmSourceParams, Stability.ALPHA)
    min_interval_s: ClassVar[float] = 1.0

    def __init__(self, name: TypedName, params: DcgmSourceParams, handle: Handle) -> None:
        super().__init__(name, params, params.path)
        self._port = checked_port(params.port, "")
        self._use_node = params.use_node_address

    def authority(self, endpoint: Endpoint) -> str:
        """The exporter's port at the endpoint's or its node's address; empty when that is not known."""
        spec = endpoint.spec
        address = spec.annotations.get(NODE_ADDRESS, "") if self._use_node else spec.address
        return host_port(address, self._port) if address else ""
