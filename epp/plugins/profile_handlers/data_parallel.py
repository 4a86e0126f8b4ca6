"""Reach the ranks of data-parallel servers through the one port at which a sidecar listens.

Each rank is an endpoint with a port of its own, and is scheduled, booked and reported as such. The request
goes to the primary port of the same host, and a header tells the sidecar there which rank is meant.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import SchedulingResult
from epp.plugins.one_profile import OneProfile
from epp.plugins.ranks import reach_through_primary_port


class DataParallelParams(PluginParams, frozen=True):
    """Parameters of data-parallel-profile-handler."""

    primary_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8000
    """Port at which the sidecar of every server listens."""


class DataParallelProfileHandler(OneProfile):
    """Runs one profile once and sends the request to the primary port of the chosen rank's host."""

    info: ClassVar = PluginInfo("data-parallel-profile-handler", DataParallelParams)

    def __init__(self, name: TypedName, params: DataParallelParams, handle: Handle) -> None:
        self.name = name
        self._port = params.primary_port

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Send the request to the sidecar of the first choice; the header speaks of no other."""
        reach_through_primary_port(result.endpoints[0], self._port, set_headers)
