"""Puts the plugins of a model's selection, and those of the data layer, in their places.

Notes every mistake: helpers of a selector where there is none, scorers without weight, plugins in lists of
another role, and plugins that need data which nothing provides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dataplane.config.epp_sections import PluginRef
from dataplane.config.ipp import PayloadProcessorConfig, ProcessingProfile, ProcessorDataLayer
from dataplane.plugin.instances import AnyPlugin, Instances
from ipp.interfaces.models import DataConsumer, DataProvider, Table
from ipp.interfaces.plugins import AnswerGuardian, ModelNaming, RequestProcessor, ResponseProcessor
from ipp.interfaces.selection import (
    Collector,
    DataSource,
    Extractor,
    ModelFilter,
    ModelPicker,
    ModelScorer,
    ModelSelector,
    WeightedScorer,
)

SELECTOR: Final = "model-selector"
DEFAULT_PICKER: Final = "max-score-picker"

HELPERS: Final = (ModelFilter, ModelScorer, ModelPicker)

DATA_ROLES: Final[Mapping[str, tuple[Any, str]]] = {
    "collectors": (Collector, "collects nothing"),
    "extractors": (Extractor, "extracts nothing from requests"),
    "datasources": (DataSource, "is no source of data"),
}


def is_selecting(plugin: AnyPlugin) -> bool:
    """Whether a plugin has a part in selections."""
    return isinstance(plugin, (ModelSelector, *HELPERS))


class SelectionPlan:
    """The selection of one profile: what its list says of it."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._selector: ModelSelector | None = None
        self._filters: list[ModelFilter] = []
        self._scorers: list[WeightedScorer] = []
        self._picker: ModelPicker | None = None
        self._helpers: list[tuple[str, AnyPlugin]] = []
        self.used: list[str] = []
        """Names of plugins that take part without being listed."""
        self.is_known = True
        """Whether all that the list names is there; what is not may be the selector."""

    def add(self, plugin: AnyPlugin, weight: float | None, path: str) -> bool:
        """Take a plugin with its place, ``path`` being that of the entry. Whether it is the selector."""
        if isinstance(plugin, ModelSelector):
            if self._selector is not None:
                self._problem(plugin, "is a second selector; a profile has one", f"{path}.pluginRef")
                return False
            self._selector = plugin
            return True
        self._helpers.append((f"{path}.pluginRef", plugin))
        if isinstance(plugin, ModelFilter):
            self._filters.append(plugin)
        if isinstance(plugin, ModelScorer):
            if weight is None:
                self._problem(plugin, "is a scorer without weight", f"{path}.weight")
            else:
                self._scorers.append(WeightedScorer(plugin, weight))
        if isinstance(plugin, ModelPicker):
            if self._picker is not None:
                self._problem(plugin, "is a second picker; a selector has one", f"{path}.pluginRef")
            self._picker = plugin
        return False

    def step(self) -> RequestProcessor | None:
        """What runs where the selector is listed; None after noting helpers that have none."""
        if self._selector is None:
            for path, plugin in self._helpers if self.is_known else ():
                self._problem(plugin, f"helps a {SELECTOR}, and this list has none", path)
            return None
        picker = self._picker or self._instances.first_of(DEFAULT_PICKER)
        if picker is None:
            return None
        self.used.append(picker.name.name)
        return self._selector.with_helpers(self._filters, self._scorers, picker)

    def _problem(self, plugin: AnyPlugin, said: str, path: str) -> None:
        name = plugin.name
        self._instances.problem(f"plugin '{name.name}' (type: {name.type}) {said}", path)


def check_both_ways(index: int, profile: ProcessingProfile, instances: Instances) -> None:
    """Note scorers that learn from answers and are not listed where they would see them."""
    answering = {entry.plugin_ref for entry in profile.plugins.response}
    for at, entry in enumerate(profile.plugins.request):
        plugin = instances.by_name.get(entry.plugin_ref)
        is_both = isinstance(plugin, ModelScorer) and isinstance(plugin, ResponseProcessor)
        if is_both and entry.plugin_ref not in answering:
            instances.problem(
                f"plugin '{entry.plugin_ref}' learns from answers; list it under response as well",
                f"profiles[{index}].plugins.request[{at}].pluginRef",
            )


def early_guards(profile: str, plugins: Sequence[RequestProcessor]) -> Iterator[str]:
    """Warnings of guardrails that look at a request before it is known which model serves it."""
    guard = ""
    for plugin in plugins:
        if isinstance(plugin, AnswerGuardian):
            guard = guard or plugin.name.name
        elif guard and isinstance(plugin, ModelNaming):
            yield (
                f"profile '{profile}': '{guard}' comes before '{plugin.name.name}', so policies go by the "
                "model that the client names; put it behind"
            )


class DataLayer(NamedTuple):
    """The plugins of the data layer."""

    plugins: Sequence[AnyPlugin]
    extractors: tuple[Extractor, ...]


def data_layer(layer: ProcessorDataLayer, instances: Instances) -> DataLayer:
    """Those that are listed, each in a list of its role; mistakes are noted."""
    found: dict[str, AnyPlugin] = {}
    extractors: list[Extractor] = []
    for section, path, entry in _entries(layer):
        role, lacking = DATA_ROLES[section]
        plugin = instances.lookup(entry.plugin_ref, path)
        if plugin is None:
            continue
        if not isinstance(plugin, role):
            instances.problem(f"plugin '{entry.plugin_ref}' (type: {plugin.name.type}) {lacking}", path)
        elif entry.plugin_ref in found:
            instances.problem(f"plugin '{entry.plugin_ref}' is listed twice", path)
        else:
            found[entry.plugin_ref] = plugin
            if isinstance(plugin, Extractor):
                extractors.append(plugin)
    return DataLayer(list(found.values()), tuple(extractors))


def _entries(layer: ProcessorDataLayer) -> Iterator[tuple[str, str, PluginRef]]:
    for section in DATA_ROLES:
        entries: Sequence[PluginRef] = getattr(layer, section)
        for index, entry in enumerate(entries):
            yield section, f"datalayer.{section}[{index}].pluginRef", entry


def check_data(config: PayloadProcessorConfig, layer: DataLayer, instances: Instances) -> None:
    """Note every plugin that needs data which nobody provides, or which two provide."""
    providers: dict[type[Table], str] = {}
    for plugin in layer.plugins:
        for table in plugin.provides if isinstance(plugin, DataProvider) else ():
            other = providers.setdefault(table, plugin.name.name)
            if other != plugin.name.name:
                instances.problem(
                    f"'{other}' and '{plugin.name.name}' both provide {table.what}; list one of them",
                    "datalayer",
                )
    for index, spec in enumerate(config.plugins):
        plugin = instances.by_name.get(spec.name or spec.type)
        for table in plugin.needs if isinstance(plugin, DataConsumer) else ():
            if table not in providers:
                instances.problem(
                    f"'{spec.name or spec.type}' needs {table.what}, which nothing in datalayer provides; "
                    f"list a {table.provider} there",
                    f"plugins[{index}]",
                )
