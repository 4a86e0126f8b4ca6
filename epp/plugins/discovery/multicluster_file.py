"""Endpoints that stand for clusters, from a YAML or JSON file in which addresses may be host names.

Labels ``metricsAddress`` and ``metricsPort`` of an endpoint tell multicluster-metrics-data-source where the
metrics of the cluster's picker are.
"""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, Stability
from epp.plugins.file_endpoints import EndpointsInFile, EndpointsInFileParams


class MulticlusterFileDiscovery(EndpointsInFile):
    """Reads the ways into clusters."""

    info: ClassVar[PluginInfo] = PluginInfo(
        "multicluster-file-discovery", EndpointsInFileParams, Stability.ALPHA
    )
    takes_host_names: ClassVar[bool] = True
