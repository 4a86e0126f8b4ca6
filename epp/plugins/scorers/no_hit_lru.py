"""Spread prompts that no endpoint holds: the endpoint that got such a prompt longest ago scores best.

A new conversation fills a cache that later turns will want, so new ones should go round. While some endpoint
holds part of the prompt every score is 0.5 and the choice is left to others. Otherwise endpoints rank from
never used, in their order, to most recently used, and score 1 - rank / (n - 1); a single one scores 1.0.

The order is kept in a column of use counts by slot, so that ranking is one sort. Only the ``lruSize`` most
recently used endpoints are remembered; the others count as never used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from dataplane.plugin.state import listing
from epp.interfaces.attributes import PREFIX_MATCH, produced_by
from epp.interfaces.endpoint import Candidates, Endpoint, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import SchedulingResult, ScorerCategory

WARM_SCORE: Final = 0.5
PREFILL_PROFILE: Final = "prefill"


class NoHitLruParams(PluginParams, frozen=True):
    """Parameters of no-hit-lru-scorer."""

    lru_size: Annotated[int, msgspec.Meta(ge=1)] = 1024
    """Endpoints whose last use is remembered."""
    prefix_match_info_producer_name: str = ""
    """Name of the producer to read; empty = approx-prefix-cache-producer."""
    prefix_plugin_type: str = ""
    """Deprecated and without effect."""
    prefix_plugin_name: str = ""
    """Deprecated and without effect; name the producer in prefixMatchInfoProducerName."""


class NoHitLruScorer:
    """Scores requests without a cache hit by how long ago an endpoint got one."""

    info: ClassVar = PluginInfo("no-hit-lru-scorer", NoHitLruParams)
    category: ClassVar = ScorerCategory.DISTRIBUTION
    bounded: ClassVar = True

    def __init__(self, name: TypedName, params: NoHitLruParams, handle: Handle) -> None:
        self.name = name
        self._table = handle.table
        self._match = produced_by(PREFIX_MATCH, params.prefix_match_info_producer_name)
        self._size = params.lru_size
        self._uses = 0
        self._used_at = np.zeros(handle.table.capacity, dtype=np.int64)
        self._order: OrderedDict[int, int] = OrderedDict()
        self._version = handle.table.version
        self.consumes: Sequence[DataKey[Any]] = (self._match,)
        self.warnings = [
            f"{field} is deprecated and has no effect; use prefixMatchInfoProducerName"
            for field, value in (
                ("prefixPluginType", params.prefix_plugin_type),
                ("prefixPluginName", params.prefix_plugin_name),
            )
            if value
        ]

    def inherit(self, predecessor: NoHitLruScorer) -> None:
        """Go on with the order of use of the scorer before."""
        self._uses = predecessor._uses
        self._used_at, self._order = predecessor._used_at.copy(), predecessor._order.copy()
        self._version = predecessor._version

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """0.5 each for a prompt somebody holds, else 1.0 down to 0.0 by last use."""
        count = len(candidates)
        if self._is_warm(request):
            return np.full(count, WARM_SCORE)
        if count < 2:
            return np.ones(count)
        if self._version != self._table.version:
            self._forget_departed()
        ranks = np.empty(count)
        ranks[np.argsort(self._used_at[candidates.slots], kind="stable")] = np.arange(count)
        return 1.0 - ranks / (count - 1)

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Remember where a prompt without a hit went: the destination, and who computes its prefill."""
        if self._is_warm(request):
            return
        if self._version != self._table.version:
            self._forget_departed()
        self._use(result.endpoints[0])
        prefill = result.results.get(PREFILL_PROFILE)
        if prefill is not None and result.primary != PREFILL_PROFILE and prefill.endpoints:
            self._use(prefill.endpoints[0])

    def dump_state(self) -> dict[str, Any]:
        """Endpoints in order of their last use for a prompt without a hit, latest first."""
        table = self._table
        if self._version != table.version:
            self._forget_departed()
        latest = (table.endpoints[slot] for slot in reversed(self._order))
        ids = (endpoint.spec.id for endpoint in latest if endpoint is not None)
        return {"lruSize": self._size, "uses": self._uses, **listing("endpoints", ids, len(self._order))}

    def _is_warm(self, request: InferenceRequest) -> bool:
        match = request.get(self._match)
        return match is not None and bool(match.matched.any())

    def _use(self, endpoint: Endpoint) -> None:
        slot = endpoint.slot
        self._uses += 1
        self._used_at[slot] = self._uses
        self._order[slot] = endpoint.generation
        self._order.move_to_end(slot)
        if len(self._order) > self._size:
            oldest, _ = self._order.popitem(last=False)
            self._used_at[oldest] = 0

    def _forget_departed(self) -> None:
        """Drop slots that are free or have another tenant, and follow the table as it grows."""
        table = self._table
        self._version = table.version
        known = {s: g for s, g in self._order.items() if table.generation[s] == g}
        used_at = np.zeros(table.capacity, dtype=np.int64)
        for slot in known:
            used_at[slot] = self._used_at[slot]
        self._used_at, self._order = used_at, OrderedDict(known)
