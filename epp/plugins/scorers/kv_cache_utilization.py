"""Prefer endpoints whose KV cache has room: 1 minus its utilisation.

A full cache makes the engine preempt running requests or evict what later prompts could reuse. A row without
fresh metrics counts as the fullest fresh one, so that silence never looks like room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory


class KvCacheUtilizationScorer:
    """Scores by free KV cache."""

    info: ClassVar = PluginInfo("kv-cache-utilization-scorer")
    category: ClassVar = ScorerCategory.DISTRIBUTION
    consumes: Sequence[DataKey[Any]] = (ENGINE_METRICS,)

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """1.0 for an empty cache, 0.0 for a full one."""
        return 1.0 - candidates.kv_usage()

    def score_few(self, request: InferenceRequest, candidates: Candidates) -> list[float]:
        """The same without numpy."""
        return [min(1.0, max(0.0, 1.0 - usage)) for usage in candidates.few_kv_usages()]
