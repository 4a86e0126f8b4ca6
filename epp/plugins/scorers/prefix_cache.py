"""Prefer endpoints that already hold the beginning of the prompt in their KV cache."""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo
from epp.plugins.prefix_scoring import PrefixCacheParams, PrefixScoring


class PrefixCacheScorer(PrefixScoring):
    """Scores by matched prefix."""

    info: ClassVar = PluginInfo("prefix-cache-scorer", PrefixCacheParams)
