"""Running the one scheduling profile there is, for the profile handlers that do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dataplane.errors import ConfigError, InternalError
from dataplane.plugin.base import TypedName
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ProfileResult, SchedulingProfile, SchedulingResult


class OneProfile:
    """Base of a profile handler that runs one profile once; its result, or failure, is the request's."""

    name: TypedName

    def check_profiles(self, names: Sequence[str]) -> None:
        """Refuses more than one profile: the others would never run."""
        if len(names) > 1:
            raise ConfigError(
                f"{self.name.type} cannot support multiple scheduling profiles, got {', '.join(names)}"
            )

    def profiles(
        self,
        request: InferenceRequest,
        available: Mapping[str, SchedulingProfile],
        results: Mapping[str, ProfileResult | None],
    ) -> Sequence[SchedulingProfile]:
        """The profile, then nothing."""
        return () if results else tuple(available.values())

    def process(
        self, request: InferenceRequest, results: Mapping[str, ProfileResult | None]
    ) -> SchedulingResult:
        """The profile's result as the primary one."""
        for name, result in results.items():
            if result is not None:
                return SchedulingResult({name: result}, name)
        raise InternalError("no scheduling profile ran")
