"""Endpoints from a YAML or JSON file, watched if asked for, with the host names in it followed."""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, Stability
from epp.plugins.file_endpoints import EndpointsInFile, EndpointsInFileParams


class FileDiscovery(EndpointsInFile):
    """Reads the model servers of a pool."""

    info: ClassVar[PluginInfo] = PluginInfo("file-discovery", EndpointsInFileParams, Stability.BETA)
