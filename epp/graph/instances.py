"""Creating plugin instances, and looking them up by reference; mistakes are collected, not raised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dataplane.config.epp import PluginSpec
from dataplane.errors import ConfigError, did_you_mean
from dataplane.plugin.base import PluginInfo, TypedName
from dataplane.plugin.params import decode_params
from dataplane.plugin.registry import PluginRegistry, check_stability
from epp.interfaces.handle import Handle

AnyPlugin = Any
"""A plugin instance: which interfaces it implements is asked at run time."""


class Instances:
    """The plugin instances of a graph under construction, with the problems and warnings met so far."""

    def __init__(self, registry: PluginRegistry, handle: Handle, *, allow_experimental: bool) -> None:
        self.by_name: dict[str, AnyPlugin] = {}
        self.problems: list[ConfigError] = []
        self.warnings: list[str] = []
        self._registry = registry
        self._handle = handle
        self._allow_experimental = allow_experimental
        self._failed: set[str] = set()

    def problem(self, message: str, path: str = "") -> None:
        """Note a mistake."""
        self.problems.append(ConfigError(message, path=path))

    def create_all(self, plugins: Sequence[PluginSpec]) -> None:
        """Create the configured plugins in order."""
        for i, spec in enumerate(plugins):
            name = spec.name or spec.type
            if spec.type and name not in self.by_name:
                self.create(spec.type, name, spec.parameters, f"plugins[{i}]")

    def create(
        self, plugin_type: str, name: str, parameters: Mapping[str, Any] | None, path: str
    ) -> AnyPlugin | None:
        """One instance; None after noting why it cannot be."""
        found = len(self.problems)
        try:
            plugin_class = self._registry.resolve(plugin_type)
            info: PluginInfo = plugin_class.info
            check_stability(info, name, allow_experimental=self._allow_experimental)
        except ConfigError as error:
            self.problem(error.message, path)
            self._failed.add(name)
            return None
        if info.type != plugin_type:
            self.warnings.append(f"{path}: plugin type '{plugin_type}' is deprecated; use '{info.type}'")
        params = decode_params(parameters, info, f"{path}.parameters", self.problems)
        if len(self.problems) > found or params is None:
            self._failed.add(name)
            return None
        handle = replace(
            self._handle, plugins=MappingProxyType(self.by_name), parameters=dict(parameters or {})
        )
        try:
            plugin = plugin_class(TypedName(info.type, name), params, handle)
        except ConfigError as error:
            self.problems.append(error.within(f"{path}.parameters"))
        except (ValueError, OSError) as error:
            self.problem(f"failed to create plugin '{name}' (type: {info.type}): {error}", path)
        else:
            self.by_name[name] = plugin
            self.warnings.extend(f"plugin '{name}': {text}" for text in getattr(plugin, "warnings", ()))
            return plugin
        self._failed.add(name)
        return None

    def default(self, plugin_type: str) -> AnyPlugin | None:
        """The instance named like its type, created with default parameters if there is none."""
        plugin = self.by_name.get(plugin_type)
        if plugin is None:
            if plugin_type in self._failed:
                return None
            return self.create(plugin_type, plugin_type, None, plugin_type)
        if plugin.name.type != plugin_type:
            self.problem(
                f"the name '{plugin_type}' is needed for the plugin of that type; "
                f"rename the plugin of type '{plugin.name.type}'"
            )
            return None
        return plugin

    def first_of(self, plugin_type: str) -> AnyPlugin | None:
        """The first instance of a type, else one created with default parameters."""
        of_type = (p for p in self.by_name.values() if p.name.type == plugin_type)
        return next(of_type, None) or self.default(plugin_type)

    def lookup(self, name: str, path: str) -> AnyPlugin | None:
        """The instance a reference names; None after noting that there is none."""
        plugin = self.by_name.get(name)
        if plugin is None and name and name not in self._failed:
            known_type = name in self._registry
            hint = f"; add `- type: {name}` to plugins" if known_type else did_you_mean(name, self.by_name)
            self.problem(f"references undefined plugin '{name}'{hint}", path)
        return plugin

    def of(self, role: Any) -> list[AnyPlugin]:
        """Every instance that implements an interface, in order of creation."""
        return [plugin for plugin in self.by_name.values() if isinstance(plugin, role)]

    def is_known_type(self, name: str) -> bool:
        """Whether a name is a plugin type rather than an instance."""
        return name not in self.by_name and name not in self._failed and name in self._registry
