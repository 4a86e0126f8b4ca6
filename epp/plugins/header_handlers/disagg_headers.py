"""Set the sidecar's headers for prefill and encode; deprecated, since disagg-profile-handler does it."""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo
from epp.plugins.sidecar_headers import SidecarHeaders, SidecarHeadersParams


class DisaggHeadersHandler(SidecarHeaders):
    """Sets the headers of both stages."""

    info: ClassVar = PluginInfo("disagg-headers-handler", SidecarHeadersParams)
