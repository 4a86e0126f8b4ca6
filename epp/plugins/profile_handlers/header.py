"""Let the caller choose the scheduling profile by a header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

import msgspec

from dataplane.errors import ConfigError, InternalError, ResourceExhaustedError
from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ProfileResult, SchedulingProfile, SchedulingResult

MAX_REPEATED_NAME: Final = 64
"""Characters of an unknown name that the error repeats."""


class HeaderProfileParams(PluginParams, frozen=True):
    """Parameters of header-profile-handler."""

    header_name: Annotated[str, msgspec.Meta(min_length=1)] = "EPP-Profile"
    """Request header that names the profile; case does not matter."""
    default_profile: str = "decode"
    """Profile of requests without the header."""


class HeaderProfileHandler:
    """Runs the profile a header names, once."""

    info: ClassVar = PluginInfo("header-profile-handler", HeaderProfileParams, Stability.ALPHA)

    def __init__(self, name: TypedName, params: HeaderProfileParams, handle: Handle) -> None:
        self.name = name
        self._header = params.header_name.lower()
        self._default = params.default_profile

    def check_profiles(self, names: Sequence[str]) -> None:
        """Refuses a default that does not exist: every request without the header would fail."""
        if self._default not in names:
            raise ConfigError(
                f"header-profile-handler '{self.name.name}' needs its defaultProfile '{self._default}', "
                f"got {', '.join(names)}"
            )

    def profiles(
        self,
        request: InferenceRequest,
        available: Mapping[str, SchedulingProfile],
        results: Mapping[str, ProfileResult | None],
    ) -> Sequence[SchedulingProfile]:
        """The profile, then nothing. ``ResourceExhaustedError`` for a name nobody has configured."""
        if results:
            return ()
        name = request.headers.get(self._header) or self._default
        profile = available.get(name)
        if profile is None:
            error = ResourceExhaustedError(
                f"header {self._header} names the unknown scheduling profile '{name[:MAX_REPEATED_NAME]}'"
            )
            error.dropped_reason = ""  # nothing is saturated
            raise error
        return (profile,)

    def process(
        self, request: InferenceRequest, results: Mapping[str, ProfileResult | None]
    ) -> SchedulingResult:
        """The profile's result as the primary one."""
        for name, result in results.items():
            if result is not None:
                return SchedulingResult({name: result}, name)
        raise InternalError("no scheduling profile ran")
