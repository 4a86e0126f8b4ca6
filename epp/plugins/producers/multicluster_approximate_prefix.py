"""Know which cluster probably holds the beginning of a prompt: the same, where each endpoint is a cluster.

A cluster tells no block size and no capacity, so the configured ones count.
"""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, Stability
from epp.plugins.approximate_prefix import ApproximatePrefix, ApproximatePrefixParams


class MulticlusterApproximatePrefixProducer(ApproximatePrefix):
    """Produces PrefixCacheMatchInfo from the picker's own decisions about clusters."""

    info: ClassVar = PluginInfo(
        "multicluster-approx-prefix-cache-producer", ApproximatePrefixParams, stability=Stability.ALPHA
    )
