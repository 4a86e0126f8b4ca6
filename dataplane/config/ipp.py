"""``PayloadProcessorConfig``: what an operator configures of one payload processor.

The format is llm-d's. A request passes the plugins of ``preProcessing``, then the profile picker chooses one
profile, whose request plugins run before the model server and whose response plugins after it, then those of
``postProcessing``. Here are its sections as strict structs, and what can be said of them without constructing
a plugin: sizes, names, and that what refers to a plugin finds one. Which types of plugins there are, what
their parameters mean and where each may stand is for whoever constructs them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from dataplane.config.decode import decode_struct
from dataplane.config.epp_sections import PluginRef, PluginSpec, Section
from dataplane.errors import ConfigError, did_you_mean

API_VERSION: Final = "llm-d.ai/v1alpha1"
KIND: Final = "PayloadProcessorConfig"

MAX_PLUGINS: Final = 1000
MAX_PROFILES: Final = 100
MAX_ENTRIES: Final = 1000
"""References in one list."""
MAX_SUGGESTIONS: Final = 20
"""Unknown names that are compared with the known ones, and known ones that are listed."""


class ProcessorEntry(Section, frozen=True):
    """A plugin's place in a profile."""

    plugin_ref: str = ""
    """Name of a configured plugin."""
    weight: float | None = None
    """Factor of a scorer's scores, finite and not negative."""


class ProfilePlugins(Section, frozen=True):
    """What a profile runs; one of the lists at least has an entry."""

    request: list[ProcessorEntry] = msgspec.field(default_factory=list)
    """Before the model server, in this order."""
    response: list[ProcessorEntry] = msgspec.field(default_factory=list)
    """After it, in this order."""


class ProcessingProfile(Section, frozen=True):
    """One way to process a request and its answer."""

    name: str = ""
    """Unique."""
    plugins: ProfilePlugins = ProfilePlugins()
    """Its plugins."""


class ProcessingStep(Section, frozen=True):
    """What runs for every request, whatever its profile."""

    plugins: list[PluginRef] = msgspec.field(default_factory=list)
    """In this order."""


class ProcessorDataLayer(Section, frozen=True):
    """What the processor knows beyond the request."""

    collectors: list[PluginRef] = msgspec.field(default_factory=list)
    """What asks others for it, again and again."""
    extractors: list[PluginRef] = msgspec.field(default_factory=list)
    """What takes it from requests and answers that pass."""
    datasources: list[PluginRef] = msgspec.field(default_factory=list)
    """What reads it from files and the like."""


class PayloadProcessorConfig(Section, frozen=True):
    """The sections of the document, beside apiVersion, kind and metadata."""

    plugins: list[PluginSpec] = msgspec.field(default_factory=list)
    """Every plugin instance the other sections refer to; at least one."""
    pre_processing: ProcessingStep = ProcessingStep()
    """Before a profile is picked."""
    profile_picker: PluginRef | None = None
    """What chooses the profile; may be left out when there is one profile."""
    profiles: list[ProcessingProfile] = msgspec.field(default_factory=list)
    """At least one."""
    post_processing: ProcessingStep = ProcessingStep()
    """After the profile's response plugins."""
    datalayer: ProcessorDataLayer = ProcessorDataLayer()
    """Collectors, extractors and data sources."""


def read_ipp_config(
    sections: Mapping[str, Any], problems: list[ConfigError]
) -> PayloadProcessorConfig | None:
    """The configuration that a document's sections make; None after noting in ``problems`` all mistakes."""
    mistakes: list[ConfigError] = []
    config = parse_ipp_config(sections, mistakes)
    problems.extend(mistakes)
    return None if mistakes else config


def parse_ipp_config(
    sections: Mapping[str, Any], problems: list[ConfigError]
) -> PayloadProcessorConfig | None:
    """As much of a configuration as can be read; None when lists are too long to be looked at."""
    misread: list[ConfigError] = []
    config = decode_struct(dict(sections), PayloadProcessorConfig, "", misread) or PayloadProcessorConfig()
    paths = {problem.path for problem in misread}
    oversized = _oversized(config)
    found = oversized or [
        *_plugins(config.plugins),
        *_profiles(config),
        *_references(config, complete=not any(path.startswith("plugins") for path in paths)),
    ]
    problems.extend([*misread, *(problem for problem in found if not _is_within(problem.path, paths))])
    return None if oversized else config


def _is_within(path: str, misread: Collection[str]) -> bool:
    """Whether a path, or what it lies in, could not be read: then defaults stand there, which say nothing."""
    while path:
        if path in misread:
            return True
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return False


def _lists(config: PayloadProcessorConfig) -> Iterator[tuple[str, Sequence[PluginRef | ProcessorEntry]]]:
    """Each list of references with its path."""
    yield "preProcessing.plugins", config.pre_processing.plugins
    for index, profile in enumerate(config.profiles):
        yield f"profiles[{index}].plugins.request", profile.plugins.request
        yield f"profiles[{index}].plugins.response", profile.plugins.response
    yield "postProcessing.plugins", config.post_processing.plugins
    yield "datalayer.collectors", config.datalayer.collectors
    yield "datalayer.extractors", config.datalayer.extractors
    yield "datalayer.datasources", config.datalayer.datasources


def _oversized(config: PayloadProcessorConfig) -> list[ConfigError]:
    """Lists too long to be looked at."""
    sizes = [
        ("plugins", len(config.plugins), MAX_PLUGINS),
        ("profiles", len(config.profiles), MAX_PROFILES),
        *((path, len(entries), MAX_ENTRIES) for path, entries in _lists(config)),
    ]
    return [
        ConfigError(f"has {size} entries; at most {most} are allowed", path=path)
        for path, size, most in sizes
        if size > most
    ]


def _plugins(plugins: Sequence[PluginSpec]) -> Iterator[ConfigError]:
    if not plugins:
        yield ConfigError("must list at least one plugin", path="plugins")
    seen: set[str] = set()
    for index, spec in enumerate(plugins):
        name = spec.name or spec.type
        if not spec.type:
            yield ConfigError("is missing", path=f"plugins[{index}].type")
        if name and name in seen:
            message = f"'{name}' is the name of another plugin; give this one its own"
            yield ConfigError(message, path=f"plugins[{index}].name")
        seen.add(name)


def _profiles(config: PayloadProcessorConfig) -> Iterator[ConfigError]:
    if not config.profiles:
        yield ConfigError("must list at least one profile", path="profiles")
    if len(config.profiles) > 1 and config.profile_picker is None:
        message = f"is missing: nothing says which of {len(config.profiles)} profiles a request has"
        yield ConfigError(message, path="profilePicker")
    seen: set[str] = set()
    for index, profile in enumerate(config.profiles):
        path = f"profiles[{index}]"
        if not profile.name:
            yield ConfigError("is missing", path=f"{path}.name")
        elif profile.name in seen:
            yield ConfigError(f"'{profile.name}' is the name of another profile", path=f"{path}.name")
        seen.add(profile.name)
        if not profile.plugins.request and not profile.plugins.response:
            message = "must list at least one plugin, in request or in response"
            yield ConfigError(message, path=f"{path}.plugins")
        for side, entries in (("request", profile.plugins.request), ("response", profile.plugins.response)):
            for at, entry in enumerate(entries):
                if entry.weight is not None and not (math.isfinite(entry.weight) and entry.weight >= 0):
                    message = f"must be a finite number of at least 0, is {entry.weight}"
                    yield ConfigError(message, path=f"{path}.plugins.{side}[{at}].weight")


def _references(config: PayloadProcessorConfig, *, complete: bool) -> Iterator[ConfigError]:
    """References that name nothing, or nobody when the list of plugins is ``complete``."""
    names = {spec.name or spec.type for spec in config.plugins} - {""}
    entries = [(f"{path}[{at}]", entry) for path, found in _lists(config) for at, entry in enumerate(found)]
    if config.profile_picker is not None:
        entries.append(("profilePicker", config.profile_picker))
    unknown = 0
    for path, entry in entries:
        if not entry.plugin_ref:
            yield ConfigError("is missing", path=f"{path}.pluginRef")
        elif complete and names and entry.plugin_ref not in names:
            hint = _hint(entry.plugin_ref, names) if unknown < MAX_SUGGESTIONS else ""
            unknown += 1
            yield ConfigError(f"there is no plugin '{entry.plugin_ref}'{hint}", path=f"{path}.pluginRef")


def _hint(name: str, names: Collection[str]) -> str:
    listed = f"; there are {', '.join(sorted(names))}" if len(names) <= MAX_SUGGESTIONS else ""
    return did_you_mean(name, sorted(names)) or listed
