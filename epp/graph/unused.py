"""Plugins that are configured and have no effect, because nothing refers to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dataplane.plugin.instances import Instances
from epp.graph.data_layer import Sources
from epp.interfaces.data_layer import DataSource, EndpointDiscovery, Extractor
from epp.interfaces.request_control import Parser
from epp.interfaces.scheduling import Filter, Picker, Scorer, StageDecider
from epp.scheduling.profile import Profile

_PLACES: Final[tuple[tuple[Any, str], ...]] = (
    (Filter | Scorer | Picker, "no scheduling profile uses it"),
    (Parser, "requestHandler.parsers does not list it"),
    (DataSource, "dataLayer.sources does not list it"),
    (Extractor, "no entry of dataLayer.sources lists it"),
    (EndpointDiscovery, "dataLayer.discovery does not refer to it"),
    (StageDecider, "no profile handler names it"),
)
"""What a plugin is, and what is missing when it has no effect as such. All others act by being there."""


def warn_of_unused(
    instances: Instances,
    profiles: Mapping[str, Profile],
    parsers: Sequence[Any],
    sources: Sources,
    discovery: Any,
    detector: Any,
) -> None:
    """Add a warning for every plugin without effect, in configured order."""
    used = [*parsers, discovery, detector]
    for profile in profiles.values():
        used += [filter_ for _, filter_ in profile.filters]
        used += [scorer for _, scorer, _ in profile.scorers]
        used.append(profile.picker)
    for source, extractors in sources:
        used += [source, *extractors]
    in_use = {id(plugin) for plugin in used}
    for name, plugin in instances.by_name.items():
        if id(plugin) in in_use or name in instances.referenced:
            continue
        missing = next((text for role, text in _PLACES if isinstance(plugin, role)), None)
        if missing:
            instances.warnings.append(f"plugin '{name}' is configured, but {missing}")
