"""Runs the profiles a profile handler asks for and lets it name the destination.

Plain function calls on the event loop's thread: a decision neither awaits nor locks, so whatever it books
is seen by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Final, Protocol

from dataplane.errors import InternalError, RequestError, ServiceUnavailableError
from epp.interfaces.endpoint import Candidates
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import (
    FailureJudge,
    ProfileHandler,
    ProfileResult,
    SchedulingProfile,
    SchedulingResult,
)
from epp.scheduling.profile import HoldBack, PluginTimings, Profile, recorder

PROFILE_PICKER_POINT: Final = "ProfilePicker"
PROCESS_RESULTS_POINT: Final = "ProcessProfilesResults"


class SchedulingPlugins(Protocol):
    """What of a plugin graph the scheduler uses."""

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Profiles by name, in configured order."""
        ...

    @property
    def profile_handler(self) -> ProfileHandler:
        """The one profile handler."""
        ...


class Scheduler:
    """Schedules requests with one plugin graph. ``timings`` is told how long each plugin takes.

    ``hold_back`` lowers the totals of endpoints that are warming up. ``wrap`` may put something between a
    profile and whoever runs it.
    """

    def __init__(
        self,
        graph: SchedulingPlugins,
        *,
        timings: PluginTimings | None = None,
        hold_back: HoldBack | None = None,
        wrap: Callable[[Profile], SchedulingProfile] | None = None,
    ) -> None:
        self._handler = graph.profile_handler
        timed = {name: profile.timed(timings, hold_back) for name, profile in graph.profiles.items()}
        self._profiles: dict[str, SchedulingProfile] = {
            name: profile if wrap is None else wrap(profile) for name, profile in timed.items()
        }
        self._record_next = recorder(timings, PROFILE_PICKER_POINT, self._handler)
        self._record_process = recorder(timings, PROCESS_RESULTS_POINT, self._handler)

    def schedule(self, request: InferenceRequest, candidates: Candidates) -> SchedulingResult:
        """Destination endpoints and how they were found.

        ``ServiceUnavailableError`` without candidates. What a profile's ``RequestError`` means is for the
        profile handler to say, if it cares to; else it is the request's when no profile succeeded.
        """
        if not len(candidates):
            raise ServiceUnavailableError("there is no endpoint to choose from")
        results: dict[str, ProfileResult | None] = {}
        failures: dict[str, RequestError] = {}
        # A profile runs at most once, so when all have run the handler has nothing left to ask for.
        while len(results) < len(self._profiles) and (chosen := self._next(request, results)):
            for profile in chosen:
                if profile.name in results:
                    raise InternalError(f"the profile handler asked for profile '{profile.name}' twice")
                try:
                    results[profile.name] = profile.run(request, candidates)
                except RequestError as error:
                    results[profile.name] = None
                    failures[profile.name] = error
        if failures:
            if request.trace is not None:
                request.trace.failed(results, failures)
            self._judge(failures, succeeded=any(results.values()))
        return self._process(request, results)

    def _judge(self, failures: Mapping[str, RequestError], *, succeeded: bool) -> None:
        """Raise what failed profiles mean for the request, if they mean anything."""
        if isinstance(self._handler, FailureJudge):
            error = self._handler.judge(failures)
        else:
            error = None if succeeded else next(iter(failures.values()))
        if error is not None:
            raise error

    def _next(
        self, request: InferenceRequest, results: Mapping[str, ProfileResult | None]
    ) -> list[SchedulingProfile]:
        start = perf_counter()
        chosen = list(self._handler.profiles(request, self._profiles, results))
        self._record_next(perf_counter() - start)
        return chosen

    def _process(
        self, request: InferenceRequest, results: Mapping[str, ProfileResult | None]
    ) -> SchedulingResult:
        start = perf_counter()
        result = self._handler.process(request, results)
        self._record_process(perf_counter() - start)
        return result
