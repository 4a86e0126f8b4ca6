"""Building scheduling profiles and finding their handler, with the defaults of the configuration format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dataplane.config.epp import EndpointPickerConfig, ProfilePlugin, SchedulingProfileSpec
from dataplane.errors import ConfigError
from dataplane.plugin.instances import Instances
from epp.interfaces.scheduling import Filter, Picker, ProfileCheck, ProfileHandler, Scorer
from epp.scheduling.profile import Profile

DEFAULT_PROFILE: Final = "default"
DEFAULT_PICKER: Final = "max-score-picker"
DEFAULT_HANDLER: Final = "single-profile-handler"
DEFAULT_WEIGHT: Final = 1.0

MAX_WEIGHTS: Final = 1e100
"""Weights of one profile together: totals, and their sums over a pool, stay finite."""


def build_profiles(config: EndpointPickerConfig, instances: Instances) -> dict[str, Profile]:
    """Profiles by name. Without any, one that uses every configured filter, scorer and picker in order."""
    specs = config.scheduling_profiles or [_everything(instances)]
    profiles: dict[str, Profile] = {}
    for i, spec in enumerate(specs):
        profile = _profile(spec, f"schedulingProfiles[{i}]", instances)
        if profile is not None:
            profiles[spec.name] = profile
    return profiles


def find_handler(profiles: Sequence[str], instances: Instances) -> ProfileHandler | None:
    """The one profile handler; with one profile and no handler, a single-profile-handler."""
    handlers = instances.of(ProfileHandler)
    if len(handlers) > 1:
        names = ", ".join(f"'{handler.name.name}'" for handler in handlers)
        instances.problem(f"multiple profile handlers found: {names}; keep one", "plugins")
        return None
    if handlers:
        handler = handlers[0]
    elif instances.has_failed(ProfileHandler) or any(_is_handler(t) for t in instances.unresolved):
        return None
    elif len(profiles) > 1:
        instances.problem(
            "no profile handler configured, but there are several profiles; add a plugin of type "
            "disagg-profile-handler or header-profile-handler",
            "plugins",
        )
        return None
    else:
        handler = instances.default(DEFAULT_HANDLER)
    if isinstance(handler, ProfileCheck):
        try:
            handler.check_profiles(profiles)
        except ConfigError as error:
            instances.problem(error.message, error.path or "schedulingProfiles")
    return handler if isinstance(handler, ProfileHandler) else None


def _everything(instances: Instances) -> SchedulingProfileSpec:
    plays = (
        name for name, plugin in instances.by_name.items() if isinstance(plugin, Filter | Scorer | Picker)
    )
    return SchedulingProfileSpec(
        name=DEFAULT_PROFILE, plugins=[ProfilePlugin(plugin_ref=name) for name in plays]
    )


def _profile(spec: SchedulingProfileSpec, path: str, instances: Instances) -> Profile | None:
    """One profile; a plugin that plays several roles is used in each."""
    filters: list[tuple[str, Filter]] = []
    scorers: list[tuple[str, Scorer, float]] = []
    pickers: list[tuple[str, Picker]] = []
    for j, entry in enumerate(spec.plugins):
        at = f"{path}.plugins[{j}]"
        plugin = instances.lookup(entry.plugin_ref, f"{at}.pluginRef")
        if plugin is None:
            continue
        name = entry.plugin_ref
        if isinstance(plugin, Filter):
            filters.append((name, plugin))
        if isinstance(plugin, Scorer):
            scorers.append((name, plugin, DEFAULT_WEIGHT if entry.weight is None else entry.weight))
        elif entry.weight is not None:
            instances.warnings.append(f"{at}: the weight is ignored, '{name}' is not a scorer")
        if isinstance(plugin, Picker):
            pickers.append((name, plugin))
        if not isinstance(plugin, Filter | Scorer | Picker):
            instances.warnings.append(f"{at}: '{name}' does nothing here: no filter, scorer or picker")
    if len(pickers) > 1:
        names = ", ".join(f"'{name}'" for name, _ in pickers)
        instances.problem(f"profile '{spec.name}' has several pickers: {names}; keep one", path)
    weights = [weight for _, _, weight in scorers]
    if all(map(math.isfinite, weights)) and sum(weights) > MAX_WEIGHTS:
        instances.problem(f"the weights add up to more than {MAX_WEIGHTS:g}; use smaller ones", path)
    if scorers and not any(weights):
        instances.warnings.append(f"{path}: every weight is 0, so all endpoints score alike")
    picker = pickers[0][1] if pickers else _default_picker(instances)
    return None if picker is None else Profile(spec.name, filters, scorers, picker)


def _default_picker(instances: Instances) -> Picker | None:
    """The first configured picker, else a max-score-picker."""
    configured: list[Picker] = instances.of(Picker)
    if configured:
        return configured[0]
    plugin = instances.default(DEFAULT_PICKER)
    return plugin if isinstance(plugin, Picker) else None


def _is_handler(unknown_type: str) -> bool:
    """Whether a type that is not registered was meant as a handler: all are named so, typing errors apart."""
    return "profile-hand" in unknown_type
