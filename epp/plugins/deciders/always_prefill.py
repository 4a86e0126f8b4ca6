"""Prefill every request on a prefill worker, however short its prompt."""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest


class AlwaysPrefillDecider:
    """Says yes."""

    info: ClassVar = PluginInfo("always-disagg-pd-decider")

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def wants_stage(self, request: InferenceRequest, endpoint: Endpoint | None) -> bool:
        """Yes, whatever the request and the endpoint."""
        return True
