"""A scheduler that writes down when each plugin of a decision ran.

Beside the one that serves all other requests: only those whose trace is recorded go through it, so that the
rest pay nothing. Both count durations in the same metrics. A decision is one call on one thread, so what is
written down needs no key: it is the decision at hand.
"""

from __future__ import annotations

from time import perf_counter

from dataplane.errors import RequestError
from dataplane.plugin.base import TypedName
from epp.interfaces.endpoint import Candidates
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ProfileResult, SchedulingResult
from epp.interfaces.spans import ProfileRun, Scheduling, TimedCall
from epp.scheduling.profile import HoldBack, PluginTimings, Profile, Record
from epp.scheduling.scheduler import Scheduler, SchedulingPlugins


class _Journal:
    """Calls and profiles of the decision at hand; also the ``PluginTimings`` of the scheduler within."""

    def __init__(self, timings: PluginTimings) -> None:
        self._timings = timings
        self.calls: list[TimedCall] = []
        self.profiles: list[ProfileRun] = []

    def recorder(self, point: str, plugin: object) -> Record:
        """Counts as before, and writes down."""
        count = self._timings.recorder(point, plugin)
        name: TypedName = plugin.name  # type: ignore[attr-defined]  # every plugin has one

        def record(seconds: float) -> None:
            ended = perf_counter()
            count(seconds)
            self.calls.append(TimedCall(point, name, ended - seconds, ended))

        return record

    def take(self, result: SchedulingResult | None) -> Scheduling:
        """What was written down, with what came of it; the journal is empty then."""
        taken = Scheduling(self.profiles, self.calls, result)
        self.profiles, self.calls = [], []
        return taken


class _TracedProfile:
    """A profile whose runs are written down."""

    def __init__(self, profile: Profile, journal: _Journal) -> None:
        self.name = profile.name
        self._profile = profile
        self._journal = journal

    def run(self, request: InferenceRequest, candidates: Candidates) -> ProfileResult:
        """As the profile does."""
        started, before = perf_counter(), len(self._journal.calls)
        try:
            result = self._profile.run(request, candidates)
        except RequestError as error:
            self._note(len(candidates), started, before, None, error.message)
            raise
        self._note(len(candidates), started, before, result, "")
        return result

    def _note(
        self, candidates: int, started: float, before: int, result: ProfileResult | None, error: str
    ) -> None:
        journal = self._journal
        calls = journal.calls[before:]
        del journal.calls[before:]
        journal.profiles.append(
            ProfileRun(self.name, candidates, started, perf_counter(), calls, result, error)
        )


class TracedScheduler:
    """Schedules requests that have a trace, and tells it how."""

    def __init__(
        self, graph: SchedulingPlugins, timings: PluginTimings, hold_back: HoldBack | None = None
    ) -> None:
        self._journal = journal = _Journal(timings)
        self._scheduler = Scheduler(
            graph,
            timings=journal,
            hold_back=hold_back,
            wrap=lambda each: _TracedProfile(each, journal),
        )

    def schedule(self, request: InferenceRequest, candidates: Candidates) -> SchedulingResult:
        """As the scheduler does."""
        result: SchedulingResult | None = None
        try:
            result = self._scheduler.schedule(request, candidates)
            return result
        finally:
            taken = self._journal.take(result)
            if request.spans is not None:
                request.spans.scheduled(taken)
