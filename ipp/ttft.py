"""Times to the first byte of answers, by model: what was observed, and what follows from it.

Of each model a bounded window is kept. The newest observations say how it does now; the floor, the time of
the quickest tenth over a long time, says how it does when nobody waits. Between the two, time grows with the
number of requests under way.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, NamedTuple

from ipp.interfaces.models import MAX_MODELS, Table

REFRESH_S: Final = 1.0
"""How long a summary holds."""
MEDIAN_BAND: Final = (0.4, 0.6)
"""Quantiles between which an observation belongs to the median, whose load is their mean."""
QUARTER_BAND: Final = (0.15, 0.35)
"""The same for the quicker quarter."""


class Limits(NamedTuple):
    """Of the windows; seconds and observations."""

    max_observation_age: float = 180.0
    max_requests: int = 100
    low_load_window_age: float = 3600.0
    floor_interval: float = 60.0
    window_size: int = 5000


class Observation(NamedTuple):
    """One answer's beginning."""

    at: float
    seconds: float
    in_flight: int
    """Requests that the model had when this one was sent, itself not counted."""


class Summary(NamedTuple):
    """What a window says now."""

    observed: int
    """Observations of the long window."""
    recent: int
    """Observations of the short window."""
    floor: float
    """Seconds when nobody waits; 0 without observations."""
    median: float
    in_flight_at_median: float
    quarter: float = 0.0
    """Seconds below which the quickest quarter of the short window lies."""
    in_flight_at_quarter: float = 0.0

    def predicted(self, in_flight: int) -> float:
        """Seconds that a request sent now may take, with so many others under way."""
        if self.recent == 0:
            return self.floor
        if self.in_flight_at_median <= 0:
            return self.median
        slope = (self.median - self.floor) / self.in_flight_at_median
        return self.floor + max(slope, 0.0) * in_flight


NOTHING: Final = Summary(0, 0, 0.0, 0.0, 0.0)


class TtftWindow:
    """The observations of one model."""

    def __init__(self, limits: Limits) -> None:
        self.in_flight = 0
        self._limits = limits
        self._seen: deque[Observation] = deque(maxlen=limits.window_size)
        self._summary = NOTHING
        self._summed_up_at = float("-inf")
        self._floor = 0.0
        self._floor_at = float("-inf")

    def observe(self, observation: Observation) -> None:
        """Take one; the oldest makes room."""
        if not self._seen:
            self._summed_up_at = self._floor_at = float("-inf")
        self._seen.append(observation)

    def summary(self, now: float) -> Summary:
        """What follows from the window, at most ``REFRESH_S`` old."""
        if now - self._summed_up_at < REFRESH_S:
            return self._summary
        self._summed_up_at = now
        oldest = now - self._limits.low_load_window_age
        while self._seen and self._seen[0].at < oldest:
            self._seen.popleft()
        newest = islice(reversed(self._seen), self._limits.max_requests)
        recent = [each for each in newest if each.at >= now - self._limits.max_observation_age]
        self._summary = self._sum_up(recent, now)
        return self._summary

    def _sum_up(self, recent: list[Observation], now: float) -> Summary:
        if not self._seen:
            return NOTHING
        if now - self._floor_at >= self._limits.floor_interval:
            self._floor, self._floor_at = _quantile(sorted(each.seconds for each in self._seen), 0.1), now
        if not recent:
            return Summary(len(self._seen), 0, self._floor, 0.0, 0.0)
        recent.sort(key=lambda each: each.seconds)
        times = [each.seconds for each in recent]
        return Summary(
            len(self._seen),
            len(recent),
            min(self._floor, _quantile(times, 0.1)),
            _quantile(times, 0.5),
            _load(recent, MEDIAN_BAND),
            _quantile(times, 0.25),
            _load(recent, QUARTER_BAND),
        )


class TtftTable(Table):
    """The windows of all models."""

    what = "times to the first byte of each model"
    provider = "ttft-percentile-extractor"

    def __init__(self) -> None:
        self.limits = Limits()
        self.min_requests = 10
        """Observations from which on a summary is believed."""
        self.windows: dict[str, TtftWindow] = {}

    def window(self, model: str) -> TtftWindow | None:
        """The window of a model, made when it is first asked for; None when there are too many."""
        found = self.windows.get(model)
        if found is None and len(self.windows) < MAX_MODELS:
            found = self.windows[model] = TtftWindow(self.limits)
        return found


def _load(rising: list[Observation], band: tuple[float, float]) -> float:
    """What was under way on average when answers took as long as those between two quantiles."""
    low, high = (min(int(len(rising) * share), len(rising) - 1) for share in band)
    chosen = rising[low : high + 1]
    return sum(each.in_flight for each in chosen) / len(chosen)


def _quantile(rising: list[float], share: float) -> float:
    """The value below which this share of all lies."""
    return rising[min(int(len(rising) * share), len(rising) - 1)]
