"""Keeping a session on its endpoint strictly, for the filters that do."""

from __future__ import annotations

from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.request import InferenceRequest
from epp.plugins.session_affinity import SessionAffinity


class StrictSessionAffinity(SessionAffinity):
    """Leaves the session's endpoint. Base of filters."""

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
