"""Prefer clusters that already hold the beginning of the prompt; each endpoint is a cluster."""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, Stability
from epp.plugins.prefix_scoring import PrefixCacheParams, PrefixScoring


class MulticlusterPrefixCacheScorer(PrefixScoring):
    """Scores by matched prefix."""

    info: ClassVar = PluginInfo(
        "multicluster-prefix-cache-scorer", PrefixCacheParams, stability=Stability.ALPHA
    )
