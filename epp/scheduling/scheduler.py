"""Runs the profiles a profile handler asks for and lets it name the destination.

Plain function calls on the event loop's thread: a decision neither awaits nor locks, so whatever it books
is seen by the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Final, Protocol

from dataplane.errors import InternalError, RequestError, ServiceUnavailableError
from epp.interfaces.endpoint import Candidates
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ProfileHandler, ProfileResult, SchedulingProfile, SchedulingResult
from epp.scheduling.profile import PluginTimings, Profile, recorder

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
    """Schedules requests with one plugin graph. ``timings`` is told how long each plugin takes."""

    def __init__(self, graph: SchedulingPlugins, *, timings: PluginTimings | None = None) -> None:
        self._handler = graph.profile_handler
        self._profiles: dict[str, SchedulingProfile] = {
            name: profile.timed(timings) for name, profile in graph.profiles.items()
        }
        self._record_next = recorder(timings, PROFILE_PICKER_POINT, self._handler)
        self._record_process = recorder(timings, PROCESS_RESULTS_POINT, self._handler)

    def schedule(self, request: InferenceRequest, candidates: Candidates) -> SchedulingResult:
        """Destination endpoints and how they were found.

        ``ServiceUnavailableError`` without candidates. A profile's ``RequestError`` is the request's when no
        profile succeeded, else the profile handler decides what a failed profile means.
        """
        if not len(candidates):
            raise ServiceUnavailableError("there is no endpoint to choose from")
        results: dict[str, ProfileResult | None] = {}
        failure: RequestError | None = None
        while chosen := self._next(request, results):
            for profile in chosen:
                if profile.name in results:
                    raise InternalError(f"the profile handler asked for profile '{profile.name}' twice")
                try:
                    results[profile.name] = profile.run(request, candidates)
                except RequestError as error:
                    results[profile.name] = None
                    failure = failure or error
        if failure is not None and not any(results.values()):
            raise failure
        return self._process(request, results)

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
