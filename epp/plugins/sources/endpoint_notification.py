"""Name the coming, going and relabelling of endpoints as a data source.

Nothing is polled. Plugins that derive something from endpoints hear of them whether they are listed under
this source or not; listing them is understood, so that configurations that do can be used as they are.
"""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.handle import Handle


class EndpointNotificationSource:
    """The events of endpoint discovery."""

    info: ClassVar[PluginInfo] = PluginInfo("endpoint-notification-source", PluginParams, Stability.BETA)
    notifies_of: ClassVar[str] = "endpoint"

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name
