"""Leave on each endpoint where it runs, as its labels tell.

Labels are those discovery reports of the endpoint itself. An endpoint with none of them has no topology.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import TOPOLOGY, Topology
from epp.interfaces.endpoint import EndpointSpec
from epp.interfaces.handle import Handle


class TopologyExtractorParams(PluginParams, frozen=True):
    """Parameters of ``topology-extractor``."""

    hostname: str = "kubernetes.io/hostname"
    """Label that names the host."""
    rack: str = "topology.kubernetes.io/rack"
    """Label that names the rack."""
    zone: str = "topology.kubernetes.io/zone"
    """Label that names the zone."""
    region: str = "topology.kubernetes.io/region"
    """Label that names the region."""


class TopologyExtractor:
    """Leaves Topology on endpoints."""

    info: ClassVar[PluginInfo] = PluginInfo("topology-extractor", TopologyExtractorParams, Stability.ALPHA)

    def __init__(self, name: TypedName, params: TopologyExtractorParams, handle: Handle) -> None:
        self.name = name
        self._labels = (params.hostname, params.rack, params.zone, params.region)
        self._key = TOPOLOGY.by(name.name)
        self.produces: Sequence[DataKey[Any]] = (self._key,)

    def extract(self, spec: EndpointSpec) -> Mapping[DataKey[Any], Any]:
        """The topology, None when no label tells anything."""
        places = [spec.labels.get(label, "") if label else "" for label in self._labels]
        return {self._key: Topology(*places) if any(places) else None}
