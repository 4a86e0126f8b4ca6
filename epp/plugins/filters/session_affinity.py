"""Keep a session on its endpoint strictly: where it is present, no other one is left.

A request without a session, or whose endpoint is not among the candidates, passes with all of them.
"""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, Stability
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.request import InferenceRequest
from epp.plugins.session_affinity import SessionAffinity, SessionAffinityParams


class SessionAffinityFilter(SessionAffinity):
    """Leaves the session's endpoint."""

    info: ClassVar = PluginInfo("session-affinity-filter", SessionAffinityParams, stability=Stability.ALPHA)

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """The session's endpoint, or all when it is not among them."""
        endpoint = self.pinned(request)
        if endpoint is None:
            return candidates
        keep = candidates.slots == endpoint.slot
        return candidates.where(keep) if keep.any() else candidates

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """Where the session is instead."""
        pinned = self.pinned(request)
        return "" if pinned is None else f"the session is on {pinned.spec.id}"
