"""``single-profile-picker``: the one profile there is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage


class SingleProfilePicker:
    """With several profiles configured it takes the first."""

    info: ClassVar = PluginInfo("single-profile-picker", PluginParams, Stability.STABLE)
    needs_request_body: ClassVar[bool] = False

    def __init__(self, name: TypedName, _: PluginParams, __: Handle) -> None:
        self.name = name

    def named_profiles(self) -> Sequence[tuple[str, str]]:
        """None."""
        return ()

    def pick(self, _: RequestMessage, profiles: Collection[str]) -> str:
        """The first profile."""
        return self.always(profiles)

    def always(self, profiles: Collection[str]) -> str:
        """The first profile."""
        return next(iter(profiles))
