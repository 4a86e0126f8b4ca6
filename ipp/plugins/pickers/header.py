"""``header-profile-picker``: the profile that a header's value stands for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, ClassVar

import msgspec

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.plugins.header_names import HeaderName, check_header_name
from ipp.plugins.pickers_by_value import named, profile_of


class HeaderProfilePickerParams(PluginParams, frozen=True, kw_only=True):
    """``default`` is for every other value, and for requests without the header."""

    header_name: HeaderName
    """The header whose value decides."""
    profiles: Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=1000)]
    """Value -> profile; a value may end in ``*``, of which the longest that fits counts."""
    default: str
    """The profile of everything else."""

    def __post_init__(self) -> None:
        check_header_name(self.header_name)


class HeaderProfilePicker:
    """Reads the header as the client, or an edge before us, has sent it."""

    info: ClassVar = PluginInfo("header-profile-picker", HeaderProfilePickerParams)
    needs_request_body: ClassVar[bool] = False

    def __init__(self, name: TypedName, params: HeaderProfilePickerParams, _: Handle) -> None:
        self.name = name
        self._header = params.header_name.lower()
        self._params = params

    def named_profiles(self) -> Sequence[tuple[str, str]]:
        """Those of the table and the default."""
        return named(self._params.profiles, self._params.default)

    def pick(self, request: RequestMessage, _: Collection[str]) -> str:
        """The profile of the header's value."""
        return profile_of(request.header(self._header), self._params.profiles, self._params.default)
