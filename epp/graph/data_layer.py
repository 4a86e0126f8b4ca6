"""Wiring data sources to their extractors, and finding endpoint discovery.

Sources are polled when an operator lists them; the default pair only when a plugin reads what it delivers, so
that a configuration that schedules without measured load polls nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dataplane.config.epp import DataLayerSpec, DataSourceSpec
from dataplane.plugin.base import DataKey
from dataplane.plugin.instances import Instances
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.data_layer import (
    DataSource,
    EndpointDiscovery,
    EndpointExtractor,
    Extractor,
    NotificationSource,
)
from epp.interfaces.endpoint_attributes import MAX_KEYS
from epp.interfaces.request_control import Consumer, EndpointObserver, OptionalConsumer

DEFAULT_SOURCE: Final = "metrics-data-source"
DEFAULT_EXTRACTOR: Final = "core-metrics-extractor"

Sources = list[tuple[DataSource, tuple[Extractor, ...]]]


def wire_sources(spec: DataLayerSpec, instances: Instances) -> Sources:
    """Listed sources with their extractors, then the default pair unless it is listed or unwanted."""
    sources: Sources = []
    seen: set[str] = set()
    for i, entry in enumerate(spec.sources):
        path = f"dataLayer.sources[{i}]"
        plugin = instances.lookup(entry.plugin_ref, f"{path}.pluginRef")
        if plugin is None:
            continue
        if entry.plugin_ref in seen:
            instances.problem(f"data source '{entry.plugin_ref}' is listed twice", f"{path}.pluginRef")
            continue
        seen.add(entry.plugin_ref)
        if isinstance(plugin, NotificationSource):
            _check_notified(entry, plugin, path, instances)
        elif not isinstance(plugin, DataSource):
            instances.problem(f"the plugin '{entry.plugin_ref}' is not a data source", f"{path}.pluginRef")
        else:
            sources.append((plugin, tuple(_extractors(entry, plugin, path, instances))))
    if spec.inject_defaults is not False:
        _inject(sources, seen, instances)
    for source, extractors in sources:
        source.bind(extractors)
    return sources


def _inject(sources: Sources, listed: set[str], instances: Instances) -> None:
    """Add the default source with the default extractor; a listed source of that type, whatever its name,
    takes its place."""
    if any(source.name.type == DEFAULT_SOURCE for source, _ in sources):
        return
    if any(_type_of(name, instances) == DEFAULT_SOURCE for name in listed):
        return
    source, extractor = instances.first_of(DEFAULT_SOURCE), instances.first_of(DEFAULT_EXTRACTOR)
    if isinstance(source, DataSource) and isinstance(extractor, Extractor):
        sources.append((source, (extractor,)))


def without_unread(sources: Sources, spec: DataLayerSpec, instances: Instances) -> Sources:
    """The sources without a default pair that no plugin reads; call it when all plugins are there."""
    listed = {entry.plugin_ref for entry in spec.sources}
    read: set[DataKey[Any]] = set()
    for plugin in instances.by_name.values():
        if isinstance(plugin, Consumer):
            read.update(plugin.consumes)
        if isinstance(plugin, OptionalConsumer):
            read.update(plugin.may_consume)

    def is_read(extractor: Extractor) -> bool:
        return any(key in read or key.by("") in read for key in extractor.produces)

    return [
        (source, extractors)
        for source, extractors in sources
        if source.name.name in listed or any(map(is_read, extractors))
    ]


def endpoint_attributes(sources: Sources, instances: Instances) -> Sequence[DataKey[Any]]:
    """Keys of all attributes that extractors leave on endpoints."""
    polled = [extractor for _, extractors in sources for extractor in extractors]
    producers = [*polled, *instances.of(EndpointExtractor)]
    return [key for producer in producers for key in producer.produces if key is not ENGINE_METRICS]


def check_attributes(sources: Sources, instances: Instances) -> None:
    """Note when there are more attributes than the table of endpoints keeps: the last would be lost."""
    keys = set(endpoint_attributes(sources, instances))
    count = len(keys | {key.by("") for key in keys})
    if count > MAX_KEYS:
        instances.problem(
            f"the extractors leave {count} attributes on endpoints, each counted with and without its "
            f"producer; at most {MAX_KEYS} are kept: remove customMetrics that nobody reads",
            "plugins",
        )


def _check_notified(
    entry: DataSourceSpec, source: NotificationSource, path: str, instances: Instances
) -> None:
    """Those who can hear do, whether they are bound or not; one that has no use for it is named."""
    for j, reference in enumerate(entry.extractors):
        at = f"{path}.extractors[{j}].pluginRef"
        plugin = instances.lookup(reference.plugin_ref, at)
        if plugin is not None and not isinstance(plugin, (EndpointExtractor, EndpointObserver)):
            instances.warnings.append(
                f"{at}: the plugin '{reference.plugin_ref}' does without {source.notifies_of} notifications"
            )


def _type_of(name: str, instances: Instances) -> str:
    plugin = instances.by_name.get(name)
    return plugin.name.type if plugin is not None else ""


def _extractors(
    entry: DataSourceSpec, source: DataSource, path: str, instances: Instances
) -> Sequence[Extractor]:
    found: list[Extractor] = []
    types: set[str] = set()
    for j, reference in enumerate(entry.extractors):
        at = f"{path}.extractors[{j}].pluginRef"
        plugin = instances.lookup(reference.plugin_ref, at)
        if plugin is None:
            continue
        if not isinstance(plugin, Extractor):
            instances.problem(f"the plugin '{reference.plugin_ref}' is not an extractor", at)
        elif plugin.expects != source.payload:
            instances.problem(
                f"extractor '{reference.plugin_ref}' reads {plugin.expects}, "
                f"but data source '{entry.plugin_ref}' delivers {source.payload}",
                at,
            )
        elif plugin.name.type in types:
            instances.problem(f"a second extractor of type '{plugin.name.type}' on one data source", at)
        else:
            types.add(plugin.name.type)
            found.append(plugin)
    return found


def find_discovery(spec: DataLayerSpec, instances: Instances) -> EndpointDiscovery | None:
    """The endpoint discovery, if one is configured."""
    if spec.discovery is None:
        return None
    path = "dataLayer.discovery.pluginRef"
    plugin = instances.lookup(spec.discovery.plugin_ref, path)
    if plugin is None:
        return None
    if not isinstance(plugin, EndpointDiscovery):
        instances.problem(f"the plugin '{spec.discovery.plugin_ref}' is not an endpoint discovery", path)
        return None
    return plugin
