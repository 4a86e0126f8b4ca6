"""Know which endpoint probably holds the beginning of a prompt, from what was sent where."""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo
from epp.plugins.approximate_prefix import ApproximatePrefix, ApproximatePrefixParams


class ApproximatePrefixProducer(ApproximatePrefix):
    """Produces PrefixCacheMatchInfo from the picker's own decisions."""

    info: ClassVar = PluginInfo("approx-prefix-cache-producer", ApproximatePrefixParams)
