"""Keep the endpoints that generate tokens.

The role label says which stages an endpoint serves; one without the label serves decode, so a pool without
roles passes whole. No such endpoint leaves nobody.
"""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.plugins.endpoint_facts import SpecFilter
from epp.plugins.roles import serves_decode, shown_role


class DecodeFilter:
    """Filters by the decode stage."""

    info: ClassVar = PluginInfo("decode-filter")

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name
        self._filter = SpecFilter(serves_decode)

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """The endpoints that serve decode."""
        return self._filter.kept(candidates)

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """The role that does not serve the stage."""
        return f"{shown_role(endpoint.spec)} does not serve decode"
