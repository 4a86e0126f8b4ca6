"""Keep a session on its cluster: session-affinity-filter where every endpoint is the gateway of a cluster.

A type of its own lets one configuration pin sessions to clusters and another one to servers, under names that
say which.
"""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, Stability
from epp.plugins.session_affinity import SessionAffinityParams
from epp.plugins.session_filter import StrictSessionAffinity


class MulticlusterSessionAffinityFilter(StrictSessionAffinity):
    """Leaves the session's cluster."""

    info: ClassVar = PluginInfo(
        "multicluster-session-affinity-filter", SessionAffinityParams, stability=Stability.ALPHA
    )
