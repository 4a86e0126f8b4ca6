"""Keep the endpoints that compute prompts for others.

The role label must say so: endpoints without it are left out, because they expect whole requests. No such
endpoint leaves nobody.
"""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.plugins.endpoint_facts import SpecFilter
from epp.plugins.roles import serves_prefill, shown_role


class PrefillFilter:
    """Filters by the prefill stage."""

    info: ClassVar = PluginInfo("prefill-filter")

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name
        self._filter = SpecFilter(serves_prefill)

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """The endpoints that serve prefill."""
        return self._filter.kept(candidates)

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """The role that does not serve the stage."""
        return f"{shown_role(endpoint.spec)} does not serve prefill"
