"""``model-profile-picker``: the profile of the request's model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, ClassVar

import msgspec

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.plugins.pickers_by_value import named, profile_of


class ModelProfilePickerParams(PluginParams, frozen=True, kw_only=True):
    """``default`` is for every other model, and for requests that name none."""

    profiles: Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=1000)]
    """Model -> profile; a name may end in ``*``, of which the longest that fits counts."""
    default: str
    """The profile of everything else."""


class ModelProfilePicker:
    """Waits for the body, which names the model."""

    info: ClassVar = PluginInfo("model-profile-picker", ModelProfilePickerParams)
    needs_request_body: ClassVar[bool] = True

    def __init__(self, name: TypedName, params: ModelProfilePickerParams, _: Handle) -> None:
        self.name = name
        self._params = params

    def named_profiles(self) -> Sequence[tuple[str, str]]:
        """Those of the table and the default."""
        return named(self._params.profiles, self._params.default)

    def pick(self, request: RequestMessage, _: Collection[str]) -> str:
        """The profile of the model."""
        return profile_of(request.model, self._params.profiles, self._params.default)
