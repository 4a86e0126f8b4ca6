"""The older name of disagg-headers-handler, deprecated like it."""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo
from epp.plugins.sidecar_headers import SidecarHeaders, SidecarHeadersParams


class PrefillHeaderHandler(SidecarHeaders):
    """Sets the headers of both stages, as it has come to do."""

    info: ClassVar = PluginInfo("prefill-header-handler", SidecarHeadersParams)
