"""``load-aware-ttft-scorer``: prefers the model whose answer is expected to begin first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final

import msgspec

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel
from ipp.interfaces.selection import ScoreTrace
from ipp.plugins.ttft_scoring import Expectation, known, note
from ipp.ttft import Summary, TtftTable

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
        self._trace = handle.data.table(ScoreTrace)

    def score_models(self, request: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """The shortest expected time of all, divided by each model's own; 1 for models to be tried."""
        found = known(self._table, candidates, self._clock())
        if self._trace.is_wanted:
            note(request, candidates, [self._expected(*each) for each in found])
        least = self._table.min_requests
        if self._rate and self._rng.random() < self._rate:
            rare = [1.0 if summary.recent < least else 0.0 for summary, _ in found]
            if any(rare):
                return rare
        if any(summary.observed + in_flight < least for summary, in_flight in found):
            return [1.0 if summary.observed + in_flight < least else 0.0 for summary, in_flight in found]
        if not any(summary.observed for summary, _ in found):
            return [1.0 / (1 + in_flight) for _, in_flight in found]
        times = [
            max(summary.predicted(in_flight), LEAST_S) if summary.observed else 0.0
            for summary, in_flight in found
        ]
        best = min(time for time in times if time)
        return [best / time if time else 0.0 for time in times]

    def _expected(self, summary: Summary, in_flight: int) -> Expectation:
        """For those who ask why."""
        least = self._table.min_requests
        state = "cold" if summary.observed < least else "seed" if summary.recent < least else "trusted"
        return Expectation(state, summary, in_flight, summary.predicted(in_flight))
