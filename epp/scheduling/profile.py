"""One scheduling profile: filters in order, weighted scores, one picker.

Scores of all scorers live in one matrix (scorer x candidate), so that clamping and weighting are a few
vector operations whatever the number of scorers. Sums are taken row by row and never by a matrix product:
equal endpoints must get equal totals to the last bit, or ties would not be ties.

The result keeps references to these arrays as its trace; nothing is formatted unless somebody reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Final, Protocol

import numpy as np

from dataplane.errors import ResourceExhaustedError
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import Filter, FilterTrace, Picker, ProfileResult, Scorer, ScorerTrace

FILTER_POINT: Final = "Filter"
SCORER_POINT: Final = "Scorer"
PICKER_POINT: Final = "Picker"

_ZERO: Final = np.zeros(())
_ONE: Final = np.ones(())
"""Bounds as arrays: numpy converts plain numbers anew on every call."""


class PluginTimings(Protocol):
    """Told how long each plugin took."""

    def observe(self, point: str, plugin: object, seconds: float) -> None:
        """``point`` is the extension point's name, ``plugin`` the instance."""
        ...


class Profile:
    """A named filter-score-pick chain. Immutable; safe to share between decisions."""

    __slots__ = ("_column", "_timings", "filters", "name", "picker", "scorers")

    def __init__(
        self,
        name: str,
        filters: Sequence[tuple[str, Filter]],
        scorers: Sequence[tuple[str, Scorer, float]],
        picker: Picker,
        timings: PluginTimings | None = None,
    ) -> None:
        self.name = name
        self.filters = tuple(filters)
        self.scorers = tuple(scorers)
        self.picker = picker
        self._column = np.array([[weight] for _, _, weight in self.scorers], dtype=np.float64)
        self._timings = timings

    def timed(self, timings: PluginTimings | None) -> Profile:
        """The same profile, reporting durations to ``timings``."""
        return Profile(self.name, self.filters, self.scorers, self.picker, timings)

    def run(self, request: InferenceRequest, candidates: Candidates) -> ProfileResult:
        """Filter, score and pick. ``ResourceExhaustedError`` when the filters leave nobody."""
        filters = self._filter(request, candidates) if self.filters else []
        if filters:
            candidates = filters[-1][1]
        totals, scorers = self._score(request, candidates)
        timings = self._timings
        if timings is None:
            positions = self.picker.pick(request, candidates, totals)
        else:
            start = perf_counter()
            positions = self.picker.pick(request, candidates, totals)
            timings.observe(PICKER_POINT, self.picker, perf_counter() - start)
        endpoints = [candidates.endpoint(position) for position in positions]
        return ProfileResult(self.name, endpoints, candidates, totals, scorers, [t for t, _ in filters])

    def _filter(
        self, request: InferenceRequest, candidates: Candidates
    ) -> list[tuple[FilterTrace, Candidates]]:
        """Each filter's trace and what it left."""
        steps: list[tuple[FilterTrace, Candidates]] = []
        timings = self._timings
        for name, plugin in self.filters:
            before = len(candidates)
            start = perf_counter() if timings is not None else 0.0
            candidates = plugin.filter(request, candidates)
            if timings is not None:
                timings.observe(FILTER_POINT, plugin, perf_counter() - start)
            after = len(candidates)
            if not after:
                raise ResourceExhaustedError(
                    f"no endpoint can take the request: filter '{name}' of profile '{self.name}' "
                    f"left none of {before}"
                )
            steps.append((FilterTrace(name, before, after), candidates))
        return steps

    def _score(self, request: InferenceRequest, candidates: Candidates) -> tuple[Floats, list[ScorerTrace]]:
        """Totals per candidate, and each scorer's part; a score that is not a number counts as 0."""
        if not self.scorers:
            return np.zeros(len(candidates)), []
        scores = np.empty((len(self.scorers), len(candidates)))
        timings = self._timings
        traces: list[ScorerTrace] = []
        for row, (name, plugin, weight) in zip(scores, self.scorers, strict=True):
            if timings is None:
                row[:] = plugin.score(request, candidates)
            else:
                start = perf_counter()
                row[:] = plugin.score(request, candidates)
                timings.observe(SCORER_POINT, plugin, perf_counter() - start)
            traces.append(ScorerTrace(name, weight, row))
        np.fmax(scores, _ZERO, out=scores)
        np.minimum(scores, _ONE, out=scores)
        return np.add.reduce(scores * self._column, axis=0), traces
