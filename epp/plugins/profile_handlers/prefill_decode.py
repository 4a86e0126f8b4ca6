"""Serve a request by decode, and prefill on a worker of its own where it is worth while.

Deprecated: disagg-profile-handler does the same and more. As there, the prefill endpoint travels in a header
to the sidecar; with ``primaryPort`` the decode endpoint is a rank that is reached through that port.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from dataplane.errors import ConfigError
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import PREFIX_MATCH, TOKENIZED_PROMPT, produced_by
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import SchedulingResult
from epp.plugins.ranks import reach_through_primary_port
from epp.plugins.stages import Stage, StagedProfiles, stage_decider

Name = Annotated[str, msgspec.Meta(min_length=1)]


class PrefillDecodeParams(PluginParams, frozen=True):
    """Parameters of pd-profile-handler."""

    decode_profile: Name = "decode"
    """Scheduling profile that chooses the destination."""
    prefill_profile: Name = "prefill"
    """Scheduling profile that chooses who computes the prompt."""
    decider_plugin_name: Name = "prefix-based-pd-decider"
    """Plugin that says whether a request is prefilled on its own."""
    prefix_match_info_producer_name: str = ""
    """Producer of matches that must be there; empty = approx-prefix-cache-producer."""
    primary_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """Port through which the decode server's ranks are reached; 0 = each at its own."""
    prefix_plugin_type: str = ""
    """Without effect."""
    prefix_plugin_name: str = ""
    """Without effect."""

    def __post_init__(self) -> None:
        if self.decode_profile == self.prefill_profile:
            raise ConfigError("must be another profile than that of decode", path="prefillProfile")

    def references(self) -> Mapping[str, str]:
        """The decider."""
        return {"deciderPluginName": self.decider_plugin_name}


class PrefillDecodeProfileHandler(StagedProfiles):
    """Runs decode and, as the decider says, prefill."""

    info: ClassVar = PluginInfo("pd-profile-handler", PrefillDecodeParams)

    def __init__(self, name: TypedName, params: PrefillDecodeParams, handle: Handle) -> None:
        decider = stage_decider(handle.plugins, params.decider_plugin_name, "deciderPluginName")
        names = {
            Stage.DECODE: params.decode_profile,
            Stage.PREFILL: params.prefill_profile,
            Stage.ENCODE: "",
        }
        super().__init__(name, names, {Stage.PREFILL: decider}, order=(Stage.DECODE, Stage.PREFILL))
        match = produced_by(PREFIX_MATCH, params.prefix_match_info_producer_name)
        self.consumes = (TOKENIZED_PROMPT, match)
        self._port = params.primary_port
        self.warnings = ["pd-profile-handler is deprecated; use disagg-profile-handler"]
        self.warnings += [
            f"{field} has no effect; remove it"
            for field, value in (
                ("prefixPluginType", params.prefix_plugin_type),
                ("prefixPluginName", params.prefix_plugin_name),
            )
            if value
        ]

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Tell the sidecar where prefill runs and which rank is meant."""
        super().pre_request(request, result, set_headers)
        if self._port:
            reach_through_primary_port(result.endpoints[0], self._port, set_headers)
