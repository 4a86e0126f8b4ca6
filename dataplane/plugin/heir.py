"""The step of a plugin's state from one configuration to the next."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

log = logging.getLogger(__name__)


@runtime_checkable
class Heir(Protocol):
    """A plugin that can take over what its predecessor of the same type and name has learnt."""

    def inherit(self, predecessor: Any) -> None:
        """Take what still holds under the own parameters. Must leave the predecessor usable."""
        ...


def bequeath(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Let each new plugin, by name, take over from its predecessor of the same type and name."""
    for name, plugin in new.items():
        predecessor = old.get(name)
        if predecessor is None or predecessor is plugin:
            continue
        is_same = predecessor.name == plugin.name
        if is_same and isinstance(plugin, Heir):
            try:
                plugin.inherit(predecessor)
            except Exception:  # what was learnt is a help, not a condition: the plugin starts afresh
                log.exception("plugin %s could not take over from its predecessor", name)
