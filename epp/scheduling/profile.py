"""One scheduling profile: filters in order, weighted scores, one picker.

Sums are taken scorer by scorer and never by a matrix product: equal endpoints must get equal totals to the
last bit, or ties would not be ties. Scores are clamped to [0, 1] unless their scorer vouches for them.

The result keeps references to these arrays as its trace; nothing is formatted unless somebody reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, Protocol

import numpy as np

from epp.interfaces.endpoint import FEW, Candidates, Floats
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import (
    FewScorer,
    Filter,
    FiltersDrainedError,
    FilterTrace,
    Picker,
    ProfileResult,
    Scorer,
    ScorerCategory,
    ScorerTrace,
)

FILTER_POINT: Final = "Filter"
SCORER_POINT: Final = "Scorer"
PICKER_POINT: Final = "Picker"

_ZERO: Final = np.zeros(())
_ONE: Final = np.ones(())
"""Bounds as arrays: numpy converts plain numbers anew on every call."""


class HoldBack(Protocol):
    """Lowers the totals of some candidates before one is picked."""

    def __call__(
        self, candidates: Candidates, totals: Floats, scorers: Sequence[ScorerTrace], affine: Sequence[bool]
    ) -> ScorerTrace | None:
        """Change ``totals`` in place; the change as a trace of weight 1, None for none.

        ``affine`` says which scorers are about affinity.
        """
        ...


Record = Callable[[float], None]
"""Takes the seconds one call of a plugin took."""


class PluginTimings(Protocol):
    """Keeps how long plugins take."""

    def recorder(self, point: str, plugin: object) -> Record:
        """What to call after each call of ``plugin`` at the extension point ``point``."""
        ...


def no_record(seconds: float) -> None:
    """Where durations go that nobody keeps."""


def recorder(timings: PluginTimings | None, point: str, plugin: object) -> Record:
    """The plugin's recorder, resolved once so that a decision does no look-up."""
    return no_record if timings is None else timings.recorder(point, plugin)


class Profile:
    """A named filter-score-pick chain. Immutable; safe to share between decisions."""

    __slots__ = (
        "_affine",
        "_few_steps",
        "_filter_steps",
        "_hold_back",
        "_record_pick",
        "_score_steps",
        "filters",
        "name",
        "picker",
        "scorers",
    )

    def __init__(
        self,
        name: str,
        filters: Sequence[tuple[str, Filter]],
        scorers: Sequence[tuple[str, Scorer, float]],
        picker: Picker,
        timings: PluginTimings | None = None,
        hold_back: HoldBack | None = None,
    ) -> None:
        self.name = name
        self.filters = tuple(filters)
        self.scorers = tuple(scorers)
        self.picker = picker
        self._hold_back = hold_back
        self._affine = [plugin.category is ScorerCategory.AFFINITY for _, plugin, _ in self.scorers]
        self._filter_steps = [
            (name, plugin, recorder(timings, FILTER_POINT, plugin)) for name, plugin in self.filters
        ]
        self._score_steps = [
            (
                name,
                plugin,
                weight,
                np.array(weight, dtype=np.float64),
                getattr(plugin, "bounded", False),
                recorder(timings, SCORER_POINT, plugin),
            )
            for name, plugin, weight in self.scorers
        ]
        self._few_steps = []
        if all(isinstance(plugin, FewScorer) for _, plugin, _ in self.scorers):
            self._few_steps = [
                (name, plugin.score_few, weight, recorder(timings, SCORER_POINT, plugin))
                for name, plugin, weight in self.scorers
                if isinstance(plugin, FewScorer)
            ]
        self._record_pick = recorder(timings, PICKER_POINT, picker)

    def timed(self, timings: PluginTimings | None, hold_back: HoldBack | None = None) -> Profile:
        """The same profile, reporting durations to ``timings`` and holding warming endpoints back."""
        return Profile(self.name, self.filters, self.scorers, self.picker, timings, hold_back)

    def run(self, request: InferenceRequest, candidates: Candidates) -> ProfileResult:
        """Filter, score and pick. ``FiltersDrainedError`` when the filters leave nobody."""
        filters = self._filter(request, candidates) if self.filters else []
        if filters:
            candidates = filters[-1].left
        totals, scorers = self._score(request, candidates)
        if self._hold_back is not None and candidates.table.warming and len(candidates) > 1:
            held = self._hold_back(candidates, totals, scorers, self._affine)
            if held is not None:
                scorers.append(held)
        start = perf_counter()
        positions = self.picker.pick(request, candidates, totals)
        self._record_pick(perf_counter() - start)
        endpoints = [candidates.endpoint(position) for position in positions]
        return ProfileResult(self.name, endpoints, candidates, totals, scorers, filters)

    def _filter(self, request: InferenceRequest, candidates: Candidates) -> list[FilterTrace]:
        """Each filter and what it left."""
        steps: list[FilterTrace] = []
        for name, plugin, record in self._filter_steps:
            before = len(candidates)
            start = perf_counter()
            candidates = plugin.filter(request, candidates)
            record(perf_counter() - start)
            steps.append(FilterTrace(name, before, candidates))
            if not len(candidates):
                raise FiltersDrainedError(
                    f"no endpoint can take the request: filter '{name}' of profile '{self.name}' "
                    f"left none of {before}",
                    steps,
                )
        return steps

    def _score(self, request: InferenceRequest, candidates: Candidates) -> tuple[Floats, list[ScorerTrace]]:
        """Totals per candidate, and each scorer's part; a score that is not a number counts as 0."""
        if self._few_steps and len(candidates) <= FEW:
            return self._score_few(request, candidates)
        totals: Floats | None = None
        traces: list[ScorerTrace] = []
        for name, plugin, weight, factor, is_bounded, record in self._score_steps:
            start = perf_counter()
            scores = plugin.score(request, candidates)
            record(perf_counter() - start)
            if not is_bounded:
                scores = np.minimum(np.fmax(scores, _ZERO), _ONE)
            traces.append(ScorerTrace(name, weight, scores))
            part = scores * factor
            totals = part if totals is None else np.add(totals, part, out=totals)
        return (np.zeros(len(candidates)) if totals is None else totals), traces

    def _score_few(
        self, request: InferenceRequest, candidates: Candidates
    ) -> tuple[Floats, list[ScorerTrace]]:
        """The same on lists, for a handful of candidates and scorers that all can."""
        totals = [0.0] * len(candidates)
        traces: list[ScorerTrace] = []
        for name, score, weight, record in self._few_steps:
            start = perf_counter()
            scores = score(request, candidates)
            record(perf_counter() - start)
            traces.append(ScorerTrace(name, weight, scores))
            totals = [total + weight * part for total, part in zip(totals, scores, strict=True)]
        return np.array(totals), traces
