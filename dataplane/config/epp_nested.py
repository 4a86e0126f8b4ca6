"""The tree form of a configuration, ``scheduler.profileHandler.primaryProfile``, made plugins and a profile.

llm-d's concept pages write filters, scorers and the picker in place instead of naming plugins first. The tree
is translated once, before anything is checked; ``Origins`` leads each mistake found in the translation back
to the place in the document that an operator has to mend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dataplane.config.document import join
from dataplane.config.epp_sections import (
    EndpointPickerConfig,
    NestedHandler,
    NestedProfile,
    PluginSpec,
    ProfilePlugin,
    SchedulingProfileSpec,
)
from dataplane.errors import ConfigError

PROFILE: Final = "default"
"""Name of the profile that a tree becomes."""

_HANDLER: Final = "scheduler.profileHandler"
_PROFILE: Final = f"{_HANDLER}.primaryProfile"


class Origins(dict[str, str]):
    """Paths of the translated configuration -> paths of the document."""

    def of(self, path: str) -> str:
        """The document's path; the same one when nothing was translated there."""
        for end in range(len(path), 0, -1):
            if (end == len(path) or path[end] in ".[") and path[:end] in self:
                return self[path[:end]] + path[end:]
        return path

    def of_error(self, error: ConfigError) -> ConfigError:
        """The same error where it is in the document."""
        return ConfigError(error.message, path=self.of(error.path)) if self else error

    def of_warning(self, text: str) -> str:
        """The same text; a path it begins with becomes the document's."""
        path, separator, rest = text.partition(": ")
        return f"{self.of(path)}{separator}{rest}" if self and separator else text


def unnest(
    config: EndpointPickerConfig, problems: list[ConfigError], warnings: list[str]
) -> tuple[EndpointPickerConfig, Origins]:
    """The same configuration without a ``scheduler``; mistakes of the tree's form are noted."""
    origins = Origins()
    if config.scheduler is None:
        return config, origins
    warnings.append("scheduler is the form of concept pages; write plugins and schedulingProfiles")
    handler = config.scheduler.profile_handler
    config = msgspec.structs.replace(config, scheduler=None)
    if config.scheduling_profiles:
        problems.append(
            ConfigError("excludes schedulingProfiles; move the plugins of one to the other", path="scheduler")
        )
    else:
        tree = _Tree(config.plugins, problems, origins)
        tree.add_handler(handler)
        tree.add_profile(handler.primary_profile)
        config = msgspec.structs.replace(
            config,
            plugins=tree.plugins,
            scheduling_profiles=[SchedulingProfileSpec(name=PROFILE, plugins=list(tree.entries.values()))],
        )
        origins["schedulingProfiles[0]"] = _PROFILE
        origins["schedulingProfiles"] = _HANDLER
    return config, origins


class _Tree:
    """The translation so far."""

    def __init__(self, plugins: list[PluginSpec], problems: list[ConfigError], origins: Origins) -> None:
        self.plugins = list(plugins)
        self.entries: dict[str, ProfilePlugin] = {}
        """The profile's plugins by name, in order."""
        self._problems = problems
        self._origins = origins

    def add_handler(self, handler: NestedHandler) -> None:
        """The handler's plugin, unless the default one is meant or it is configured above."""
        if handler.type and handler.type not in self._names():
            self._add(PluginSpec(type=handler.type, parameters=handler.parameters), _HANDLER, inline=False)
        elif handler.parameters:
            self._problems.append(
                ConfigError(f"give {_HANDLER}.type along with them", path=f"{_HANDLER}.parameters")
            )

    def add_profile(self, profile: NestedProfile) -> None:
        """The profile's plugins, in the order in which they run."""
        for i, entry in enumerate(profile.filters):
            self._entry(entry, f"{_PROFILE}.filters[{i}]", weighted=False)
        for i, entry in enumerate(profile.scorers):
            self._entry(entry, f"{_PROFILE}.scorers[{i}]", weighted=True)
        if profile.picker is not None:
            self._entry(profile.picker, f"{_PROFILE}.picker", weighted=False)

    def _entry(self, raw: Any, path: str, *, weighted: bool) -> None:
        fields = {"type": raw} if isinstance(raw, str) else raw
        if not isinstance(fields, dict):
            self._problems.append(ConfigError("expected a plugin type or a mapping", path=path))
            return
        fields = dict(fields)
        weight = self._weight(fields.pop("weight", None), path) if weighted else None
        plugin_type, name = fields.pop("type", ""), fields.pop("name", "")
        if not isinstance(plugin_type, str) or not isinstance(name, str) or not (plugin_type or name):
            self._problems.append(ConfigError("needs a `type` or a `name`, as text", path=path))
            return
        name = name or plugin_type
        inline = "parameters" not in fields
        parameters = fields if inline else fields.pop("parameters")
        if parameters is not None and not isinstance(parameters, dict):
            self._problems.append(ConfigError("expected a mapping", path=join(path, "parameters")))
            return
        if not inline and fields:
            self._problems.append(
                ConfigError("stands beside `parameters`; move it there", path=join(path, next(iter(fields))))
            )
        if name not in self._names():
            spec = PluginSpec(name=name, type=plugin_type or name, parameters=parameters or None)
            self._add(spec, path, inline=inline)
        elif parameters:
            self._problems.append(
                ConfigError(f"plugin '{name}' is configured elsewhere; set its parameters there", path=path)
            )
        if name not in self.entries or weight is not None:
            at = list(self.entries).index(name) if name in self.entries else len(self.entries)
            self.entries[name] = ProfilePlugin(plugin_ref=name, weight=weight)
            self._origins[f"schedulingProfiles[0].plugins[{at}]"] = path
            self._origins[f"schedulingProfiles[0].plugins[{at}].pluginRef"] = path

    def _weight(self, raw: Any, path: str) -> float | None:
        if raw is None or (isinstance(raw, int | float) and not isinstance(raw, bool)):
            return None if raw is None else float(raw)
        self._problems.append(ConfigError("expected a number", path=join(path, "weight")))
        return None

    def _add(self, spec: PluginSpec, path: str, *, inline: bool) -> None:
        here = f"plugins[{len(self.plugins)}]"
        self._origins[here] = path
        if inline:
            self._origins[f"{here}.parameters"] = path
        self.plugins.append(spec)

    def _names(self) -> Mapping[str, PluginSpec]:
        return {spec.name or spec.type: spec for spec in self.plugins}
