"""``ttft-aware-scorer``: prefers the model that is expected to answer first, by the slope near its load.

Time grows faster than load does, so a line from an idle model's time says too little of a busy one. The line
here goes through two points that were observed: the quicker quarter at its load, and the median at its own.
Where both loads are nearly the same their slope says nothing, and the lower point moves to the floor.
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


class TtftAwareScorerParams(PluginParams, frozen=True, kw_only=True):
    """All have defaults."""

    exploration_rate: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of requests for which each model that is not known well scores 1, by lot for each; for the others
    it scores 0 while there are models that are. 0 = it scores by what is expected."""
    anchor_gap_scale: Annotated[float, msgspec.Meta(gt=0, le=1_000_000.0)] = 2.0
    """Requests by which the loads of both points differ from which on the lower one counts fully."""


class TtftAwareScorer:
    """A model that was never seen enough is expected to be as quick as the quickest."""

    info: ClassVar = PluginInfo("ttft-aware-scorer", TtftAwareScorerParams)
    needs: ClassVar = (TtftTable,)

    def __init__(self, name: TypedName, params: TtftAwareScorerParams, handle: Handle) -> None:
        self.name = name
        self._rate = params.exploration_rate
        self._gap = params.anchor_gap_scale
        self._rng = handle.rng
        self._clock = handle.clock
        self._table = handle.data.table(TtftTable)
        self._trace = handle.data.table(ScoreTrace)

    def score_models(self, request: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """1 for the shortest expected time, 0 for the longest, in proportion between."""
        found = known(self._table, candidates, self._clock())
        expected = [self._expect(summary, in_flight) for summary, in_flight in found]
        times = [each.seconds for each in expected if each.state != "cold"]
        least = min(times, default=0.0)
        scores = shortest_first([least if each.state == "cold" else each.seconds for each in expected])
        if self._rate and any(each.state == "trusted" for each in expected):
            for at, each in enumerate(expected):
                if each.state != "trusted":
                    is_tried = self._rng.random() < self._rate
                    scores[at] = 1.0 if is_tried else 0.0
                    expected[at] = each._replace(is_suppressed=not is_tried)
        if self._trace.is_wanted:
            note(request, candidates, expected)
        return scores

    def _expect(self, summary: Summary, in_flight: int) -> Expectation:
        needed = self._table.min_requests
        if summary.observed < needed or summary.floor <= 0:
            return Expectation("cold", summary, in_flight, 0.0)
        is_trusted = summary.recent >= needed and summary.in_flight_at_median > 0
        if not is_trusted or summary.median <= summary.floor:
            return Expectation("seed", summary, in_flight, summary.floor)
        return Expectation("trusted", summary, in_flight, self._predicted(summary, in_flight))

    def _predicted(self, summary: Summary, in_flight: int) -> float:
        high = summary.in_flight_at_median
        share = min(max((high - summary.in_flight_at_quarter) / self._gap, 0.0), 1.0)
        low = share * summary.in_flight_at_quarter
        seconds = share * summary.quarter + (1 - share) * summary.floor
        slope = (summary.median - seconds) / (high - low)
        return max(seconds + (in_flight - low) * slope, summary.floor)
