"""Run the one scheduling profile there is; its result is the request's, and so is its failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from dataplane.errors import ConfigError, InternalError
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ProfileResult, SchedulingProfile, SchedulingResult


class SingleProfileHandler:
    """Runs one profile once."""

    info: ClassVar = PluginInfo("single-profile-handler")

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def check_profiles(self, names: Sequence[str]) -> None:
        """Refuses more than one profile: the others would never run."""
        if len(names) > 1:
            raise ConfigError(
                f"single-profile-handler cannot support multiple scheduling profiles, got {', '.join(names)}"
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
