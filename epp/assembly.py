"""Everything that depends on one configuration, and the step from one configuration to the next.

An assembly is a plugin graph with the director that runs it and the loops it asks for. A running picker has
one current assembly; a new one is built aside from the current one and only then takes its place. What the
new configuration leaves as it is (endpoints and their measurements always, the scraper when the data sources
are the same, discovery when its plugin is) goes on undisturbed; plugins of the same type and name hand what
they have learnt to their successors. Requests that are under way keep the director they began with.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from dataplane.config.epp import EndpointPickerConfig
from dataplane.errors import ConfigError
from dataplane.plugin.base import Plugin, TypedName
from epp.datalayer.discovery_runtime import DiscoveryRuntime
from epp.datalayer.notifications import EndpointNotifier
from epp.datalayer.scraper import Scraper
from epp.director import Director
from epp.graph import PluginGraph
from epp.interfaces.data_layer import EndpointDiscovery
from epp.interfaces.handle import Handle
from epp.interfaces.request_control import Closing, EndpointObserver
from epp.metrics import EppMetrics, PrefixIndex
from epp.objects.snapshot import ObjectHolder
from epp.options import EppOptions
from epp.plugins.discovery.file import FileDiscovery
from epp.plugins.file_endpoints import EndpointsInFileParams
from epp.resilience.guard import Guard

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts of one configuration."""

    graph: PluginGraph
    revision: str
    """Names the configuration's text."""
    director: Director
    scraper: Scraper
    discovery: DiscoveryRuntime
    notifier: EndpointNotifier


class Assembler:
    """Builds assemblies for one picker."""

    def __init__(
        self,
        options: EppOptions,
        handle: Handle,
        metrics: EppMetrics,
        objects: ObjectHolder,
        guard: Guard,
        *,
        with_spans: bool = False,
    ) -> None:
        self._guard = guard
        self._options = options
        self._handle = handle
        self._metrics = metrics
        self._objects = objects
        self._with_spans = with_spans

    def assemble(self, graph: PluginGraph, revision: str, current: Assembly | None) -> Assembly:
        """A new assembly, nothing of which runs yet. ``ConfigError`` when the graph cannot be run."""
        options, table = self._options, self._handle.table
        scraper: Scraper | None = None
        discovery: DiscoveryRuntime | None = None
        if current is not None:
            kept: list[tuple[Any, Any]] = []
            if _same_sources(graph, current.graph):
                scraper = current.scraper
                kept += zip(_fed(graph), _fed(current.graph), strict=True)
            if self._same_discovery(graph, current):
                discovery = current.discovery
                kept += [(graph.discovery, current.graph.discovery)]
            graph = _with_kept(graph, kept)
        if scraper is None:
            scraper = Scraper(
                table,
                [source for source, _ in graph.sources],
                self._metrics,
                base_interval_s=options.refresh_metrics_interval,
                staleness_s=options.metrics_staleness_threshold,
            )
        if discovery is None:
            discovery = DiscoveryRuntime(self._discovery_of(graph), table, ())
        director = Director(
            table,
            graph,
            self._metrics,
            self._handle.clock,
            objects=self._objects,
            rng=self._handle.rng,
            use_subset=not options.disable_endpoint_subset_filter,
            with_spans=self._with_spans,
            revision=revision,
            guard=self._guard,
        )
        notifier = EndpointNotifier(table, graph.endpoint_extractors)
        return Assembly(graph, revision, director, scraper, discovery, notifier)

    def connect(self, assembly: Assembly) -> None:
        """Make the assembly's parts the ones that hear of endpoints and are shown in metrics."""
        observers: list[EndpointObserver] = [
            assembly.scraper,
            assembly.notifier,
            self._metrics,
            self._guard,
            *assembly.graph.endpoint_observers,
        ]
        assembly.discovery.observe_with(observers)
        assembly.notifier.refresh()
        self._metrics.watch_prefix_indexes(prefix_indexes(assembly.graph))
        self._metrics.plugins.watch(assembly.graph.instances.values())
        self._metrics.saturation.watch(assembly.graph.saturation_detector)

    def _same_discovery(self, graph: PluginGraph, current: Assembly) -> bool:
        if self._options.endpoints_file:
            return graph.discovery is None
        old, new = current.graph.discovery, graph.discovery
        return old is not None and new is not None and _same(old, current.graph, new, graph)

    def _discovery_of(self, graph: PluginGraph) -> EndpointDiscovery:
        """The configuration's discovery, else ``--endpoints-file``; ``ConfigError`` if neither or both."""
        endpoints_file = self._options.endpoints_file
        if endpoints_file:
            if graph.discovery is not None:
                raise ConfigError(
                    "excludes dataLayer.discovery of the configuration", path="--endpoints-file"
                )
            name = TypedName("file-discovery", "--endpoints-file")
            params = EndpointsInFileParams(path=endpoints_file, watch_file=True)
            return FileDiscovery(name, params, self._handle)
        if graph.discovery is None:
            raise ConfigError(
                "nothing tells the picker its endpoints: name an endpoints file with --endpoints-file, or "
                "add a plugin of type file-discovery to the configuration and refer to it here",
                path="dataLayer.discovery",
            )
        return graph.discovery


async def close_plugins(graph: PluginGraph) -> None:
    """Let go of what plugins hold open, once no new request comes to them."""
    for plugin in graph.instances.values():
        if isinstance(plugin, Closing):
            try:
                await plugin.close()
            except Exception:  # one that cannot be closed keeps no other open
                log.exception("plugin %s could not be closed", plugin.name)


def prefix_indexes(graph: PluginGraph) -> list[PrefixIndex]:
    """The plugins that keep a prefix index."""
    found: list[Any] = [plugin for plugin in graph.instances.values() if hasattr(plugin, "indexed_blocks")]
    return found


def _same_sources(new: PluginGraph, old: PluginGraph) -> bool:
    """Whether both graphs read the same from the endpoints."""
    return len(new.sources) == len(old.sources) and all(
        _same(old_source, old, new_source, new)
        and len(old_extractors) == len(new_extractors)
        and all(_same(a, old, b, new) for a, b in zip(old_extractors, new_extractors, strict=True))
        for (old_source, old_extractors), (new_source, new_extractors) in zip(
            old.sources, new.sources, strict=True
        )
    )


def _fed(graph: PluginGraph) -> list[Any]:
    """Sources and their extractors, in an order that is the same for graphs with the same sources."""
    return [plugin for source, extractors in graph.sources for plugin in (source, *extractors)]


def _with_kept(graph: PluginGraph, kept: Sequence[tuple[Any, Any]]) -> PluginGraph:
    """The graph with those plugins that go on in the place of their equals, so that pages show who works."""
    old = {id(new): plugin for new, plugin in kept if new is not None}
    if not old:
        return graph
    return replace(
        graph,
        instances=MappingProxyType({name: old.get(id(p), p) for name, p in graph.instances.items()}),
        sources=tuple(
            (old.get(id(source), source), tuple(old.get(id(e), e) for e in extractors))
            for source, extractors in graph.sources
        ),
        discovery=old.get(id(graph.discovery), graph.discovery),
    )


def _same(old: Any, old_graph: PluginGraph, new: Any, new_graph: PluginGraph) -> bool:
    """Whether two plugins have the same type, name and parameters."""
    return bool(old.name == new.name) and _parameters(old_graph.config, old) == _parameters(
        new_graph.config, new
    )


def _parameters(config: EndpointPickerConfig, plugin: Plugin) -> Any:
    """The configured parameters; None for a plugin that was created by default."""
    return next((spec.parameters for spec in config.plugins if spec.name == plugin.name.name), None)
