"""From a plugin's type string to its class.

A registry is a fixed table of ``"module:Class"`` strings: looking at it imports nothing, resolving a type
imports that plugin alone. Tests and out-of-tree plugins make a registry of their own instead of changing one.
Types of the field that a process does not have can be listed with the reason, which is part of the error.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from dataplane.errors import ConfigError, did_you_mean
from dataplane.plugin.base import PluginInfo, Stability


class PluginRegistry:
    """Plugin types of one process.

    ``aliases`` maps a deprecated type string to the one that replaces it, ``absent`` a type string of the
    field to what this build lacks for it.
    """

    def __init__(
        self,
        entries: Mapping[str, str],
        aliases: Mapping[str, str] | None = None,
        absent: Mapping[str, str] | None = None,
    ) -> None:
        self.entries = MappingProxyType(dict(entries))
        self.aliases = MappingProxyType(dict(aliases or {}))
        self.absent = MappingProxyType(dict(absent or {}))
        self._classes: dict[str, type[Any]] = {}

    def __contains__(self, plugin_type: str) -> bool:
        return plugin_type in self.entries or plugin_type in self.aliases

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def extended(self, entries: Mapping[str, str]) -> PluginRegistry:
        """A registry with more entries; this one stays as it is."""
        return PluginRegistry({**self.entries, **entries}, self.aliases, self.absent)

    def canonical(self, plugin_type: str) -> str:
        """The type string itself, or the one that replaces it."""
        return self.aliases.get(plugin_type, plugin_type)

    def resolve(self, plugin_type: str) -> type[Any]:
        """The class of a type, imported on first use. ``ConfigError`` with a way out when there is none."""
        name = self.canonical(plugin_type)
        found = self._classes.get(name)
        if found is None:
            location = self.entries.get(name)
            if location is None:
                reason = self.absent.get(name)
                known = [*self.entries, *self.aliases]
                way_out = f": {reason}" if reason else did_you_mean(plugin_type, known)
                raise ConfigError(f"plugin type '{plugin_type}' is not registered{way_out}")
            found = self._classes[name] = _load(name, location)
        return found


def check_stability(info: PluginInfo, name: str, *, allow_experimental: bool) -> None:
    """``ConfigError`` for an Alpha plugin unless experimental plugins are allowed."""
    if info.stability is Stability.ALPHA and not allow_experimental:
        raise ConfigError(
            f"plugin '{name}' (type: '{info.type}') has Alpha stability level, "
            "but command line flag --allow-experimental-plugins is not set"
        )


def _load(plugin_type: str, location: str) -> type[Any]:
    module_name, _, class_name = location.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"plugin type '{plugin_type}' cannot be loaded from {location}: {error}") from error
    info = getattr(found, "info", None)
    if not isinstance(found, type) or not isinstance(info, PluginInfo):
        raise ConfigError(f"{location}, registered as '{plugin_type}', is not a plugin class with an `info`")
    if info.type != plugin_type:
        raise ConfigError(f"{location} is a plugin of type '{info.type}', registered as '{plugin_type}'")
    return found
