"""Run the one scheduling profile there is; its result is the request's, and so is its failure."""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.plugins.one_profile import OneProfile


class SingleProfileHandler(OneProfile):
    """Runs one profile once."""

    info: ClassVar = PluginInfo("single-profile-handler")

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name
