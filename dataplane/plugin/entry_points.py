"""Plugins of installed packages, found by their entry points.

A package lists its plugins in an entry-point group, one line per type: ``my-scorer = "a_package:Class"``.
All of them are imported when the process starts, so that a package that cannot be used is told then, by its
name, and not when some later configuration first asks for it. Types that are taken are refused: a package
never changes what a built-in type means.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NamedTuple

from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from dataplane.plugin.base import PluginParams
from dataplane.plugin.registry import PluginRegistry

MAX_PLUGINS: Final = 1000
"""Entry points of one group; more are a mistake."""


class Installed(NamedTuple):
    """A registry with the plugins of installed packages."""

    registry: PluginRegistry
    packages: Mapping[str, str]
    """Plugin type -> name and version of the package it comes from."""


def with_installed(registry: PluginRegistry, group: str, way_out: str) -> Installed:
    """``registry`` and what packages add to it.

    ``ConfigError`` with all that is wrong when types are taken or plugins cannot be loaded; ``way_out`` is
    the flag to do without.
    """
    problems: list[ConfigError] = []
    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, _package(entry))):
        if entry.name in registry:
            problems.append(_refused(entry, f"plugin type '{entry.name}' is built in", way_out))
        elif entry.name in found:
            other = _package(found[entry.name])
            problems.append(
                _refused(entry, f"plugin type '{entry.name}' is also in package {other}", way_out)
            )
        elif len(found) == MAX_PLUGINS:
            problems.append(_refused(entry, f"more than {MAX_PLUGINS} plugins are installed", way_out))
            break
        else:
            found[entry.name] = entry
    extended = registry.extended({name: entry.value for name, entry in found.items()})
    for name, entry in found.items():
        try:
            params = extended.resolve(name).info.params
        except ConfigError as error:
            problems.append(_refused(entry, error.message, way_out))
        except Exception as error:  # noqa: BLE001 - importing runs the package's code, which may raise anything
            reason = (
                f"plugin type '{name}' cannot be loaded from {entry.value}: {type(error).__name__}: {error}"
            )
            problems.append(_refused(entry, reason, way_out))
        else:
            if not issubclass(params, PluginParams):
                reason = f"parameters of plugin type '{name}' are no subclass of PluginParams"
                problems.append(_refused(entry, reason, way_out))
    if problems:
        raise ConfigError(str(ConfigErrors(problems)))
    return Installed(extended, {name: _package(entry) for name, entry in found.items()})


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "without a name"


def _refused(entry: EntryPoint, reason: str, way_out: str) -> ConfigError:
    return ConfigError(
        f"{reason}; mend or uninstall the package, or use {way_out}",
        path=f"installed package {_package(entry)}",
    )
