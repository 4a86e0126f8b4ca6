"""Telling the sidecar where the stages of a request run, for the deprecated plugins that do only that."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dataplane.plugin.base import PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import SchedulingResult
from epp.plugins.stages import tell_sidecar


class SidecarHeadersParams(PluginParams, frozen=True):
    """Parameters of disagg-headers-handler and prefill-header-handler."""

    prefill_profile: Annotated[str, msgspec.Meta(min_length=1)] = "prefill"
    """Scheduling profile whose first endpoint computes the prompt."""
    encode_profile: Annotated[str, msgspec.Meta(min_length=1)] = "encode"
    """Scheduling profile whose endpoints encode images, audio and video."""


class SidecarHeaders:
    """Sets the sidecar's headers from the results of two profiles."""

    def __init__(self, name: TypedName, params: SidecarHeadersParams, handle: Handle) -> None:
        self.name = name
        self._prefill, self._encode = params.prefill_profile, params.encode_profile
        self.warnings = [
            f"{name.type} is deprecated; disagg-profile-handler sets these headers itself, so remove it"
        ]

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Set what there is a result for."""
        tell_sidecar(result, self._prefill, self._encode, set_headers)
