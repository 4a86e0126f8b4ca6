"""Wiring data sources to their extractors, and finding endpoint discovery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dataplane.config.epp import DataLayerSpec, DataSourceSpec
from epp.graph.instances import Instances
from epp.interfaces.data_layer import DataSource, EndpointDiscovery, Extractor

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
        if not isinstance(plugin, DataSource):
            instances.problem(f"the plugin '{entry.plugin_ref}' is not a data source", f"{path}.pluginRef")
        elif entry.plugin_ref in seen:
            instances.problem(f"data source '{entry.plugin_ref}' is listed twice", f"{path}.pluginRef")
        else:
            seen.add(entry.plugin_ref)
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


def feeds_metrics(spec: DataLayerSpec, sources: Sources) -> bool:
    """Whether measured columns are fed, or would be but for a mistake that is noted already."""
    listed = sum(len(entry.extractors) for entry in spec.sources)
    wired = sum(len(extractors) for _, extractors in sources)
    return wired > 0 or listed > 0


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
