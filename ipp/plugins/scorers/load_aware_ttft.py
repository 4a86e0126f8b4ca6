"""``load-aware-ttft-scorer``: prefers the model whose answer is expected to begin first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final

import msgspec

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel
from ipp.ttft import NOTHING, Summary, TtftTable

LEAST_S: Final = 1e-6
"""Shorter times are all the same."""


class LoadAwareTtftScorerParams(PluginParams, frozen=True, kw_only=True):
    """One field."""

    exploration_rate: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of requests for which models of which too little was seen lately are tried first."""


class LoadAwareTtftScorer:
    """A model nobody has tried yet is tried by as many requests as it takes to know it, and no more."""

    info: ClassVar = PluginInfo("load-aware-ttft-scorer", LoadAwareTtftScorerParams)
    needs: ClassVar = (TtftTable,)

    def __init__(self, name: TypedName, params: LoadAwareTtftScorerParams, handle: Handle) -> None:
        self.name = name
        self._rate = params.exploration_rate
        self._rng = handle.rng
        self._clock = handle.clock
        self._table = handle.data.table(TtftTable)

    def score_models(self, _: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """The shortest expected time of all, divided by each model's own; 1 for models to be tried."""
        now = self._clock()
        windows = self._table.windows
        known: list[tuple[Summary, int]] = []
        for model in candidates:
            window = windows.get(model.name)
            known.append((NOTHING, 0) if window is None else (window.summary(now), window.in_flight))
        least = self._table.min_requests
        if self._rate and self._rng.random() < self._rate:
            rare = [1.0 if summary.recent < least else 0.0 for summary, _ in known]
            if any(rare):
                return rare
        if any(summary.observed + in_flight < least for summary, in_flight in known):
            return [1.0 if summary.observed + in_flight < least else 0.0 for summary, in_flight in known]
        if not any(summary.observed for summary, _ in known):
            return [1.0 / (1 + in_flight) for _, in_flight in known]
        times = [
            max(summary.predicted(in_flight), LEAST_S) if summary.observed else 0.0
            for summary, in_flight in known
        ]
        best = min(time for time in times if time)
        return [best / time if time else 0.0 for time in times]
