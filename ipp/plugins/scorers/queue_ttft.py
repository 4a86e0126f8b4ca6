"""``queue-ttft-scorer``: prefers the model whose answer is expected to begin first, by distance.

The expectation is that of ``load-aware-ttft-scorer``: a line from the floor, when nothing is under way,
through the median at its load. The score says where a model lies between the quickest and the slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel
from ipp.interfaces.selection import ScoreTrace
from ipp.plugins.ttft_scoring import Expectation, known, note, shortest_first
from ipp.ttft import Summary, TtftTable


class QueueTtftScorerParams(PluginParams, frozen=True, kw_only=True):
    """One field."""

    exploration_rate: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of requests for which models of which too little was seen lately score 1; for the others they
    score 0 while there are models that are known. 0 = they score as below."""


class QueueTtftScorer:
    """Unknown models score 1 while they have nothing to do, and 0.5 while they have."""

    info: ClassVar = PluginInfo("queue-ttft-scorer", QueueTtftScorerParams)
    needs: ClassVar = (TtftTable,)

    def __init__(self, name: TypedName, params: QueueTtftScorerParams, handle: Handle) -> None:
        self.name = name
        self._rate = params.exploration_rate
        self._rng = handle.rng
        self._clock = handle.clock
        self._table = handle.data.table(TtftTable)
        self._trace = handle.data.table(ScoreTrace)

    def score_models(self, request: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """1 for the shortest expected time, 0 for the longest, in proportion between."""
        found = known(self._table, candidates, self._clock())
        expected = [self._expect(summary, in_flight) for summary, in_flight in found]
        times = [each.seconds for each in expected if each.state != "cold"]
        if not times:
            scores = shortest_first([float(each.in_flight) for each in expected])
        else:
            rising = iter(shortest_first(times))
            scores = [
                (0.5 if each.in_flight else 1.0) if each.state == "cold" else next(rising)
                for each in expected
            ]
            if self._rate:
                scores, expected = self._explored(scores, expected)
        if self._trace.is_wanted:
            note(request, candidates, expected)
        return scores

    def _expect(self, summary: Summary, in_flight: int) -> Expectation:
        least = self._table.min_requests
        if summary.observed < least:
            return Expectation("cold", summary, in_flight, 0.0)
        state = "trusted" if summary.recent >= least else "seed"
        return Expectation(state, summary, in_flight, summary.predicted(in_flight))

    def _explored(
        self, scores: list[float], expected: list[Expectation]
    ) -> tuple[list[float], list[Expectation]]:
        """With what is not known well tried by its share of requests, and by no others."""
        if not any(each.state == "trusted" for each in expected):
            return scores, expected
        tries = [each.state != "trusted" and self._rng.random() < self._rate for each in expected]
        kept = [
            1.0 if tried else score if each.state == "trusted" else 0.0
            for score, each, tried in zip(scores, expected, tries, strict=True)
        ]
        told = [
            each._replace(is_suppressed=each.state != "trusted" and not tried)
            for each, tried in zip(expected, tries, strict=True)
        ]
        return kept, told
