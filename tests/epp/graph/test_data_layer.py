"""Data sources are wired to their extractors; the default pair is added unless it is there or unwanted."""

import pytest

from dataplane.config.problems import ConfigErrors
from epp.graph import PluginGraph, load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from tests.support.plugins import TEST_REGISTRY

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def load(text: str) -> PluginGraph:
    """The graph of a document below a correct head."""
    return load_graph(HEAD + text, Handle(EndpointTable()), registry=TEST_REGISTRY)


def problems(text: str) -> list[str]:
    """What is wrong with a document."""
    with pytest.raises(ConfigErrors) as caught:
        load(text)
    return [str(error) for error in caught.value.errors]


def wired(graph: PluginGraph) -> dict[str, list[str]]:
    """Source -> extractors, by name, as the graph and as the sources themselves know them."""
    sources = {s.name.name: [e.name.name for e in extractors] for s, extractors in graph.sources}
    assert sources == {s.name.name: [e.name.name for e in s.extractors] for s, _ in graph.sources}
    return sources


def test_the_default_pair_is_added():
    assert wired(load("")) == {"metrics-data-source": ["core-metrics-extractor"]}


def test_configured_instances_of_the_default_types_are_used_for_it():
    graph = load(
        """
plugins:
- {type: core-metrics-extractor, name: sglang, parameters: {defaultEngine: sglang}}
- {type: metrics-data-source, name: slow, parameters: {interval: 1s}}
"""
    )
    assert wired(graph) == {"slow": ["sglang"]}


def test_a_listed_metrics_source_replaces_the_default_whatever_its_name():
    graph = load(
        """
plugins: [{type: metrics-data-source, name: mine}, {type: core-metrics-extractor}]
dataLayer: {sources: [{pluginRef: mine, extractors: [{pluginRef: core-metrics-extractor}]}]}
"""
    )
    assert wired(graph) == {"mine": ["core-metrics-extractor"]}


def test_other_sources_come_before_the_default_pair():
    text = """
plugins: [{type: text-source}, {type: text-extractor}]
dataLayer: {sources: [{pluginRef: text-source, extractors: [{pluginRef: text-extractor}]}]}
"""
    assert wired(load(text)) == {
        "text-source": ["text-extractor"],
        "metrics-data-source": ["core-metrics-extractor"],
    }
    assert wired(load(text.replace("{sources", "{injectDefaults: false, sources"))) == {
        "text-source": ["text-extractor"]
    }


def test_wrong_wiring_is_refused_piece_by_piece():
    assert problems(
        """
plugins:
- type: text-source
- {type: text-extractor, name: one}
- {type: text-extractor, name: two}
- type: core-metrics-extractor
dataLayer:
  sources:
  - pluginRef: text-source
    extractors: [{pluginRef: one}, {pluginRef: two}, {pluginRef: core-metrics-extractor}, {pluginRef: zero}]
  - pluginRef: text-source
  - pluginRef: one
  - pluginRef: nothing
  - {pluginRef: metrics-data-source}
"""
    ) == [
        (
            "dataLayer.sources[0].extractors[1].pluginRef: a second extractor of type 'text-extractor' "
            "on one data source"
        ),
        (
            "dataLayer.sources[0].extractors[2].pluginRef: extractor 'core-metrics-extractor' reads "
            "prometheus-text, but data source 'text-source' delivers text"
        ),
        "dataLayer.sources[0].extractors[3].pluginRef: references undefined plugin 'zero'",
        "dataLayer.sources[1].pluginRef: data source 'text-source' is listed twice",
        "dataLayer.sources[2].pluginRef: the plugin 'one' is not a data source",
        "dataLayer.sources[3].pluginRef: references undefined plugin 'nothing'",
        (
            "dataLayer.sources[4].pluginRef: references undefined plugin 'metrics-data-source'; "
            "add `- type: metrics-data-source` to plugins"
        ),
    ]


def test_discovery_must_be_one():
    assert (
        load("plugins: [{type: nowhere}]\ndataLayer: {discovery: {pluginRef: nowhere}}").discovery is not None
    )
    assert problems("plugins: [{type: text-source}]\ndataLayer: {discovery: {pluginRef: text-source}}") == [
        "dataLayer.discovery.pluginRef: the plugin 'text-source' is not an endpoint discovery"
    ]
    assert problems("dataLayer: {discovery: {pluginRef: nowhere}}") == [
        (
            "dataLayer.discovery.pluginRef: references undefined plugin 'nowhere'; "
            "add `- type: nowhere` to plugins"
        )
    ]
