"""Prefer endpoints that have the request's LoRA adapter loaded, then those that have room for another one.

Running there 1.0; room for an adapter (running + waiting below the server's maximum) 0.8; waiting there 0.6;
else 0.0. Servers that report no adapters score 0.0.

Which adapter is where is kept in an index by adapter. A decision brings it up to date only for endpoints
that were scraped since the last one, and there only if the sets changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from dataplane.plugin.state import MAX_DUMPED, listing
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.endpoint import Candidates, EndpointTable, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory

RUNNING_SCORE: Final = 1.0
ROOM_SCORE: Final = 0.8
WAITING_SCORE: Final = 0.6

_Sets = tuple[frozenset[str], frozenset[str], int]
"""Running adapters, waiting adapters, and how many the server takes."""
_NOTHING: Final[_Sets] = (frozenset(), frozenset(), 0)


class AdapterIndex:
    """Scores by adapter for every slot of a table. Bounded by the adapters its endpoints report."""

    def __init__(self, table: EndpointTable) -> None:
        self._table = table
        self._rebuild()

    def scores(self, adapter: str) -> Floats:
        """Score of each slot for one adapter."""
        if self._table.version != self._version:
            self._rebuild()
        self._refresh()
        holders = self._holders.get(adapter)
        if not holders:
            return self._room
        scores = self._room.copy()
        slots = np.fromiter(holders.keys(), dtype=np.intp, count=len(holders))
        held = np.fromiter(holders.values(), dtype=np.float64, count=len(holders))
        scores[slots] = np.maximum(scores[slots], held)
        return scores

    def dump_state(self) -> dict[str, Any]:
        """Adapters by how many endpoints run them or have requests waiting for them, most first."""
        if self._table.version != self._version:
            self._rebuild()
        self._refresh()
        by_count = heapq.nlargest(MAX_DUMPED, self._holders.items(), key=lambda item: len(item[1]))
        adapters = ({"adapter": adapter, "endpoints": len(holders)} for adapter, holders in by_count)
        return listing("adapters", adapters, len(self._holders))

    def _rebuild(self) -> None:
        table = self._table
        self._version = table.version
        self._seen = np.full(table.capacity, -1, dtype=np.int64)
        self._room: Floats = np.zeros(table.capacity)
        self._known: dict[int, _Sets] = {}
        self._holders: dict[str, dict[int, float]] = {}

    def _refresh(self) -> None:
        """Look at endpoints where a scrape has begun or ended since the last look."""
        table = self._table
        slots = table.all().slots
        progress = table.epoch[slots] + table.applied[slots]
        behind = progress != self._seen[slots]
        if behind.any():
            for slot in slots[behind].tolist():
                self._look_at(slot)
            self._seen[slots] = progress

    def _look_at(self, slot: int) -> None:
        endpoint = self._table.endpoints[slot]
        if endpoint is None:
            return
        sets = (endpoint.active_models, endpoint.waiting_models, endpoint.max_active_models)
        before = self._known.get(slot, _NOTHING)
        if sets == before:
            return
        self._known[slot] = sets
        running, waiting, most = sets
        for adapter in before[0] | before[1]:
            holders = self._holders[adapter]
            del holders[slot]
            if not holders:
                del self._holders[adapter]
        for adapter in waiting | running:
            score = RUNNING_SCORE if adapter in running else WAITING_SCORE
            self._holders.setdefault(adapter, {})[slot] = score
        self._room[slot] = ROOM_SCORE if len(running) + len(waiting) < most else 0.0


class LoraAffinityScorer:
    """Scores by loaded adapter."""

    info: ClassVar = PluginInfo("lora-affinity-scorer")
    category: ClassVar = ScorerCategory.AFFINITY
    bounded: ClassVar = True
    consumes: Sequence[DataKey[Any]] = (ENGINE_METRICS,)

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name
        self._index = AdapterIndex(handle.table)

    def dump_state(self) -> dict[str, Any]:
        """The adapters that endpoints report."""
        return self._index.dump_state()

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """1.0 where the adapter runs, 0.8 where there is room, 0.6 where it waits, else 0.0."""
        scores: Floats = self._index.scores(request.target_model)[candidates.slots]
        return scores
