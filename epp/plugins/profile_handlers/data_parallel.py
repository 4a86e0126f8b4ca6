"""Reach the ranks of data-parallel servers through the one port at which a sidecar listens.

Each rank is an endpoint with a port of its own, and is scheduled, booked and reported as such. The request
goes to the primary port of the same host, and a header tells the sidecar there which rank is meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import msgspec

from dataplane.errors import ConfigError, InternalError
from dataplane.headers import DATA_PARALLEL, DESTINATION_ENDPOINT
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ProfileResult, SchedulingProfile, SchedulingResult


class DataParallelParams(PluginParams, frozen=True):
    """Parameters of data-parallel-profile-handler."""

    primary_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8000
    """Port at which the sidecar of every server listens."""


class DataParallelProfileHandler:
    """Runs one profile once and sends the request to the primary port of the chosen rank's host."""

    info: ClassVar = PluginInfo("data-parallel-profile-handler", DataParallelParams)

    def __init__(self, name: TypedName, params: DataParallelParams, handle: Handle) -> None:
        self.name = name
        self._port = params.primary_port

    def check_profiles(self, names: Sequence[str]) -> None:
        """Refuses more than one profile: the others would never run."""
        if len(names) > 1:
            raise ConfigError(
                "data-parallel-profile-handler cannot support multiple scheduling profiles, "
                f"got {', '.join(names)}"
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

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Send the request to the sidecar of the first choice; the header speaks of no other."""
        rank = result.endpoints[0]
        set_headers[DATA_PARALLEL] = rank.key
        set_headers[DESTINATION_ENDPOINT] = msgspec.structs.replace(rank.spec, port=self._port).key
