"""Building a plugin graph: create what is configured, fill in defaults, connect, check.

Mistakes are collected over the whole build: those of single plugins, of references and of the whole (missing
producers, cycles). What only follows from another mistake is left out. Nothing outside the new graph is
touched, so a failed build leaves no trace.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from dataplane.config.epp import EndpointPickerConfig, PluginRef, parse_epp_config
from dataplane.config.problems import ConfigErrors, raise_any
from dataplane.plugin.instances import Instances
from dataplane.plugin.registry import PluginRegistry
from epp.graph.data_layer import (
    check_attributes,
    endpoint_attributes,
    find_discovery,
    wire_sources,
    without_unread,
)
from epp.graph.data_types import check_types
from epp.graph.layers import check_layers
from epp.graph.model import PluginGraph
from epp.graph.parser_table import ParserTable
from epp.graph.producers import create_missing, in_order
from epp.graph.profiles import DEFAULT_PROFILE, build_profiles, find_handler
from epp.graph.registry import REGISTRY
from epp.graph.saturation import find_detector
from epp.graph.unused import warn_of_unused
from epp.interfaces.data_layer import EndpointExtractor
from epp.interfaces.handle import Handle
from epp.interfaces.request_control import (
    Admitter,
    EndpointObserver,
    FirstByteObserver,
    Parser,
    PreRequest,
    RequestHeaderProcessor,
    ResponseHeaderProcessor,
    ResponseObserver,
    ResponseReporter,
    Screener,
)

DEFAULT_PARSERS: Final = ("openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser")


def load_graph(
    text: str | bytes,
    handle: Handle,
    *,
    allow_experimental: bool = False,
    registry: PluginRegistry = REGISTRY,
) -> PluginGraph:
    """The graph of a configuration text. ``ConfigErrors`` with all that is wrong with text and plugins."""
    parsed = parse_epp_config(text)
    if not parsed.readable:
        raise ConfigErrors(parsed.problems)
    try:
        graph = build_graph(parsed.config, handle, allow_experimental=allow_experimental, registry=registry)
    except ConfigErrors as error:
        said = {problem.path for problem in parsed.problems if problem.path}
        found = [parsed.origins.of_error(problem) for problem in error.errors]
        more = [problem for problem in found if problem.path not in said]
        raise ConfigErrors([*parsed.problems, *more]) from None
    raise_any(parsed.problems)
    warnings = (parsed.origins.of_warning(text) for text in graph.warnings)
    return replace(graph, warnings=(*parsed.warnings, *warnings))


def build_graph(
    config: EndpointPickerConfig,
    handle: Handle,
    *,
    allow_experimental: bool = False,
    registry: PluginRegistry = REGISTRY,
) -> PluginGraph:
    """The graph of a configuration. ``ConfigErrors`` with all that is wrong with plugins and references."""
    instances = Instances(
        registry,
        lambda plugins, parameters: replace(handle, plugins=plugins, parameters=parameters),
        allow_experimental=allow_experimental,
    )
    instances.create_all(config.plugins)
    parsers = _parsers(config, instances)
    profiles = build_profiles(config, instances)
    names = [spec.name for spec in config.scheduling_profiles] or [DEFAULT_PROFILE]
    handler = find_handler(names, instances)
    sources = wire_sources(config.data_layer, instances)
    discovery = find_discovery(config.data_layer, instances)
    bound = [extractor for _, extractors in sources for extractor in extractors]
    create_missing(instances, bound)
    check_types(instances, bound)
    producers = in_order(instances)
    check_layers(instances)
    check_attributes(sources, instances)
    read = without_unread(sources, config.data_layer, instances)
    detector = find_detector(config.flow_control, [e for _, fed in read for e in fed], instances)
    if handler is None or detector is None or instances.problems:
        raise ConfigErrors(instances.problems)
    warn_of_unused(instances, profiles, parsers, sources, discovery, detector)
    return PluginGraph(
        config=config,
        instances=MappingProxyType(instances.by_name),
        parsers=ParserTable(parsers),
        request_header_processors=tuple(instances.of(RequestHeaderProcessor)),
        screeners=tuple(instances.of(Screener)),
        producers=tuple(producers),
        saturation_detector=detector,
        admitters=tuple(instances.of(Admitter)),
        profiles=MappingProxyType(profiles),
        profile_handler=handler,
        pre_requests=tuple(instances.of(PreRequest)),
        response_header_processors=tuple(instances.of(ResponseHeaderProcessor)),
        first_byte_observers=tuple(instances.of(FirstByteObserver)),
        response_reporters=tuple(instances.of(ResponseReporter)),
        response_observers=tuple(instances.of(ResponseObserver)),
        endpoint_observers=tuple(instances.of(EndpointObserver)),
        sources=tuple(read),
        endpoint_extractors=tuple(instances.of(EndpointExtractor)),
        endpoint_attributes=tuple(endpoint_attributes(read, instances)),
        discovery=discovery,
        warnings=tuple(instances.warnings),
    )


def _parsers(config: EndpointPickerConfig, instances: Instances) -> list[Parser]:
    """The listed parsers, else the default ones. A plugin type without an instance gets one."""
    listed = config.request_handler.parsers
    references = listed or [PluginRef(plugin_ref=name) for name in DEFAULT_PARSERS]
    parsers: list[Parser] = []
    for i, reference in enumerate(references):
        name, path = reference.plugin_ref, f"requestHandler.parsers[{i}].pluginRef"
        if instances.is_known_type(name):
            plugin = instances.create(name, name, None, path)
        else:
            plugin = instances.lookup(name, path, or_type=True)
        if isinstance(plugin, Parser):
            parsers.append(plugin)
        elif plugin is not None:
            instances.problem(f"the plugin '{name}' is not a parser plugin", path)
    return parsers
