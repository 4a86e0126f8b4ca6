"""Keep a session on its endpoint strictly: where it is present, no other one is left.

A request without a session, or whose endpoint is not among the candidates, passes with all of them.
"""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, Stability
from epp.plugins.session_affinity import SessionAffinityParams
from epp.plugins.session_filter import StrictSessionAffinity


class SessionAffinityFilter(StrictSessionAffinity):
    """Leaves the session's endpoint."""

    info: ClassVar = PluginInfo("session-affinity-filter", SessionAffinityParams, stability=Stability.ALPHA)
