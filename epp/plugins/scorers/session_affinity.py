"""Keep a session on its endpoint as far as other scorers allow: 1.0 for it, 0.0 for all others.

A request without a session prefers nobody.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dataplane.plugin.base import PluginInfo, Stability
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory
from epp.plugins.session_affinity import SessionAffinity, SessionAffinityParams


class SessionAffinityScorer(SessionAffinity):
    """Scores the session's endpoint."""

    info: ClassVar = PluginInfo("session-affinity-scorer", SessionAffinityParams, stability=Stability.ALPHA)
    category: ClassVar = ScorerCategory.AFFINITY
    bounded: ClassVar = True

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """1.0 for the session's endpoint, 0.0 for others."""
        endpoint = self.pinned(request)
        if endpoint is None:
            return np.zeros(len(candidates))
        return np.where(candidates.slots == endpoint.slot, 1.0, 0.0)
