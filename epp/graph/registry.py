"""Which plugin types a picker knows: the built-in ones, and those of installed packages."""

from __future__ import annotations

from typing import Final

from dataplane.plugin.entry_points import Installed, with_installed
from dataplane.plugin.registry import PluginRegistry
from epp.plugins.absent import ABSENT
from epp.plugins.catalog import ALIASES, BUILTIN

REGISTRY: Final = PluginRegistry(BUILTIN, ALIASES, ABSENT)
"""The built-in plugins."""

GROUP: Final = "pointsman.epp.plugins"
"""Entry-point group in which a package lists its plugins: type string = ``module:Class``."""

FLAG: Final = "--external-plugins=false"
"""How to run without them."""


def plugin_registry(*, external: bool) -> Installed:
    """The registry to load configurations with. ``ConfigError`` naming every package that is broken."""
    return with_installed(REGISTRY, GROUP, FLAG) if external else Installed(REGISTRY, {})
