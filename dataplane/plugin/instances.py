"""Creating plugin instances, and looking them up by reference; mistakes are collected, not raised."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Any

from dataplane.config.epp_sections import PluginSpec
from dataplane.config.problems import MAX_PROBLEMS
from dataplane.errors import ConfigError, did_you_mean
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from dataplane.plugin.params import decode_params
from dataplane.plugin.registry import PluginRegistry, check_stability

log = logging.getLogger(__name__)

AnyPlugin = Any
"""A plugin instance: which interfaces it implements is asked at run time."""

MakeHandle = Callable[[Mapping[str, AnyPlugin], Mapping[str, Any]], Any]
"""What a plugin is given of its process: from the instances built so far, and its raw parameters."""


class Instances:
    """The plugin instances of a graph under construction, with the problems and warnings met so far."""

    def __init__(self, registry: PluginRegistry, handle: MakeHandle, *, allow_experimental: bool) -> None:
        self.by_name: dict[str, AnyPlugin] = {}
        self.problems: list[ConfigError] = []
        self.warnings: list[str] = []
        self._registry = registry
        self._handle = handle
        self._allow_experimental = allow_experimental
        self._failed: set[str] = set()
        self._classes: dict[str, type[Any]] = {}
        self._configured: list[str] = []
        self._unresolved: set[str] = set()
        """Names whose type is not there: which roles they were to play is unknown."""
        self.referenced: set[str] = set()
        """Names that parameters of other plugins refer to."""

    def problem(self, message: str, path: str = "") -> None:
        """Note a mistake."""
        self.problems.append(ConfigError(message, path=path))

    def create_all(self, plugins: Sequence[PluginSpec]) -> None:
        """Create the configured plugins, each after those it refers to; they stay in configured order."""
        specs: dict[str, tuple[int, PluginSpec]] = {}
        for i, spec in enumerate(plugins):
            if spec.type:
                specs.setdefault(spec.name or spec.type, (i, spec))
        self._configured = list(specs)
        for name in self._references_first(specs):
            i, spec = specs[name]
            self.create(spec.type, name, spec.parameters, f"plugins[{i}]")
        for name in specs:
            if name in self.by_name:
                self.by_name[name] = self.by_name.pop(name)

    def _references_first(self, specs: Mapping[str, tuple[int, PluginSpec]]) -> Sequence[str]:
        """Names in an order of creation; plugins that wait for one another are noted and none is created."""
        sorter: TopologicalSorter[str] = TopologicalSorter()
        for name, (_, spec) in specs.items():
            sorter.add(name, *(other for other in self._references(spec) if other in specs))
        try:
            sorter.prepare()
        except CycleError as error:
            circle = error.args[1]
            i = min(specs[name][0] for name in circle)
            self.problem(f"plugins refer to one another: {' -> '.join(circle)}", f"plugins[{i}].parameters")
            self._failed.update(specs)
            return ()
        places = {name: i for i, name in enumerate(specs)}
        ordered: list[str] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=places.__getitem__)
            ordered += ready
            sorter.done(*ready)
        return ordered

    def _references(self, spec: PluginSpec) -> Sequence[str]:
        """Instances that a plugin's parameters name. Mistakes are for ``create`` to note."""
        try:
            plugin_class = self._registry.resolve(spec.type)
        except ConfigError:
            return ()
        self._classes[spec.name or spec.type] = plugin_class
        info: PluginInfo = plugin_class.info
        if info.params.references is PluginParams.references:
            return ()
        params = decode_params(spec.parameters, info, "", [])
        return () if params is None else list(params.references().values())

    def create(
        self, plugin_type: str, name: str, parameters: Mapping[str, Any] | None, path: str
    ) -> AnyPlugin | None:
        """One instance; None after noting why it cannot be."""
        found = len(self.problems)
        if found > MAX_PROBLEMS:
            self._failed.add(name)
            return None
        try:
            plugin_class = self._registry.resolve(plugin_type)
            info: PluginInfo = plugin_class.info
            self._classes[name] = plugin_class
            check_stability(info, name, allow_experimental=self._allow_experimental)
        except ConfigError as error:
            self.problem(error.message, path)
            self._failed.add(name)
            if name not in self._classes:
                self._unresolved.add(plugin_type)
            return None
        if info.type != plugin_type:
            self.warnings.append(f"{path}: plugin type '{plugin_type}' is deprecated; use '{info.type}'")
        params = decode_params(parameters, info, f"{path}.parameters", self.problems)
        if len(self.problems) > found or params is None or not self._has_references(params, path):
            self._failed.add(name)
            return None
        handle = self._handle(MappingProxyType(self.by_name), dict(parameters or {}))
        try:
            plugin = plugin_class(TypedName(info.type, name), params, handle)
        except ConfigError as error:
            self.problems.append(error.within(f"{path}.parameters"))
        except (ValueError, OSError) as error:
            self.problem(f"failed to create plugin '{name}' (type: {info.type}): {error}", path)
        except Exception as error:  # a plugin may come from outside, and costs only its configuration
            log.exception("plugin '%s' (type: %s) cannot be created", name, info.type)
            reason = f"{type(error).__name__}: {error}"
            self.problem(f"failed to create plugin '{name}' (type: {info.type}): {reason}", path)
        else:
            self.by_name[name] = plugin
            self.warnings.extend(f"plugin '{name}': {text}" for text in getattr(plugin, "warnings", ()))
            return plugin
        self._failed.add(name)
        return None

    def _has_references(self, params: PluginParams, path: str) -> bool:
        """Whether every instance that parameters name is there; those that are not are noted."""
        named = params.references().items()
        self.referenced.update(name for _, name in named)
        found = [self.lookup(name, f"{path}.parameters.{field}") is not None for field, name in named]
        return all(found)

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

    def lookup(self, name: str, path: str, *, or_type: bool = False) -> AnyPlugin | None:
        """The instance a reference names; None after noting that there is none.

        ``or_type`` says that a type could have been named as well.
        """
        plugin = self.by_name.get(name)
        if plugin is None and name and name not in self._failed and len(self.problems) <= MAX_PROBLEMS:
            known = [*self.by_name, *self._configured, *(self._registry if or_type else ())]
            hint = (
                f"; add `- type: {name}` to plugins" if name in self._registry else did_you_mean(name, known)
            )
            self.problem(f"references undefined plugin '{name}'{hint}", path)
        return plugin

    def of(self, role: Any) -> list[AnyPlugin]:
        """Every instance that implements an interface, in order of creation."""
        return [plugin for plugin in self.by_name.values() if isinstance(plugin, role)]

    def has_failed(self, role: Any) -> bool:
        """Whether a plugin that implements an interface could not be created."""
        return any(issubclass(self._classes[name], role) for name in self._failed & self._classes.keys())

    def failed_as(self, name: str) -> bool:
        """Whether the plugin of this name could not be created."""
        return name in self._failed

    @property
    def unresolved(self) -> AbstractSet[str]:
        """Configured types that are not registered; each is noted as a problem."""
        return self._unresolved

    def absence(self, plugin_type: str) -> str:
        """Why a plugin type that a default names is not in this build; empty when it is."""
        if plugin_type in self._registry or plugin_type in self._failed:
            return ""
        reason = self._registry.absent.get(plugin_type, "this build has no such plugin")
        return reason.partition(";")[0]

    def is_known_type(self, name: str) -> bool:
        """Whether a name is a plugin type rather than an instance."""
        return name not in self.by_name and name not in self._failed and name in self._registry
