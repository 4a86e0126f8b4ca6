"""Data sources are wired to their extractors; the default pair is added unless it is there or unwanted."""

import json

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.plugin.base import DataKey
from epp.graph import PluginGraph, load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from tests.support.plugins import TEST_REGISTRY

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def load(text: str) -> PluginGraph:
    """The graph of a document below a correct head."""
    handle = Handle(EndpointTable())
    return load_graph(HEAD + text, handle, allow_experimental=True, registry=TEST_REGISTRY)


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
    read = "plugins: [{type: queue-scorer}]"
    assert wired(load(read)) == {"metrics-data-source": ["core-metrics-extractor"]}


def test_the_default_pair_polls_nobody_when_no_plugin_reads_what_it_delivers():
    assert wired(load("plugins: [{type: all-filter}]")) == {}
    used = "plugins: [{type: prefix-cache-scorer}]"  # the index takes its sizes from the engines if it can
    assert wired(load(used)) == {"metrics-data-source": ["core-metrics-extractor"]}
    listed = """
plugins: [{type: all-filter}, {type: metrics-data-source}, {type: core-metrics-extractor}]
dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}
"""
    assert wired(load(listed)) == {"metrics-data-source": ["core-metrics-extractor"]}


def test_configured_instances_of_the_default_types_are_used_for_it():
    graph = load(
        """
plugins:
- type: queue-scorer
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
plugins: [{type: text-source}, {type: text-extractor}, {type: queue-scorer}]
dataLayer: {sources: [{pluginRef: text-source, extractors: [{pluginRef: text-extractor}]}]}
"""
    assert wired(load(text)) == {
        "text-source": ["text-extractor"],
        "metrics-data-source": ["core-metrics-extractor"],
    }
    unread = text.replace(", {type: queue-scorer}", "")
    assert wired(load(unread)) == {"text-source": ["text-extractor"]}
    assert problems(text.replace("{sources", "{injectDefaults: false, sources")) == [
        (
            "dataLayer: 'queue-scorer' reads metrics of the model servers, but no data source with an "
            "extractor is configured; list one or remove injectDefaults: false"
        )
    ]


CUSTOM = """
plugins:
- type: endpoint-attribute-filter
  parameters: {attribute: Heat, algorithm: {threshold: {operator: LessThan, value: 1}}}
- type: core-metrics-extractor
  parameters: {engineConfigs: [{name: vllm, customMetrics: [{attributeKey: Heat, metricSpec: heat}]}]}
"""


def test_an_attribute_is_read_from_whichever_extractor_leaves_it():
    graph = load(CUSTOM)
    assert wired(graph) == {"metrics-data-source": ["core-metrics-extractor"]}
    assert graph.endpoint_attributes == (DataKey("Heat", "core-metrics-extractor"),)
    assert wired(load(CUSTOM.replace("attribute: Heat", "attribute: Heat, producer: core-metrics-extractor")))


def test_an_attribute_nobody_leaves_is_refused():
    assert problems(CUSTOM.replace("attribute: Heat", "attribute: Cold")) == [
        "no default producer found for missing data key Cold, consumed by 'endpoint-attribute-filter'"
    ]
    assert problems(CUSTOM.replace("attribute: Heat", "attribute: Heat, producer: mine")) == [
        "plugins: 'endpoint-attribute-filter' consumes Heat of 'mine', which is not configured"
    ]


def test_an_extractor_that_is_fed_by_no_source_produces_nothing():
    text = CUSTOM + "dataLayer: {injectDefaults: false}"
    assert problems(text) == [
        (
            "no default producer found for missing data key Heat, consumed by 'endpoint-attribute-filter'; "
            "'core-metrics-extractor' would produce it: list it under a source in dataLayer.sources"
        )
    ]
    named = text.replace("attribute: Heat", "attribute: Heat, producer: core-metrics-extractor")
    assert problems(named) == [
        (
            "plugins: 'endpoint-attribute-filter' consumes Heat of 'core-metrics-extractor', which no data "
            "source feeds; list it under one in dataLayer.sources"
        )
    ]


def test_of_two_extractors_that_leave_an_attribute_a_reader_must_name_one():
    second = """
- type: core-metrics-extractor
  name: second
  parameters: {engineConfigs: [{name: vllm, customMetrics: [{attributeKey: Heat, metricSpec: heat}]}]}
- {type: metrics-data-source, name: other, parameters: {port: 9000}}
- type: metrics-data-source
dataLayer:
  sources:
  - {pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}
  - {pluginRef: other, extractors: [{pluginRef: second}]}
"""
    assert problems(CUSTOM + second) == [
        (
            "plugins: endpoint attribute Heat has several producers, 'core-metrics-extractor' and 'second'; "
            "say in the parameters of its readers which one is meant"
        )
    ]
    assert wired(load((CUSTOM + second).replace("attribute: Heat", "attribute: Heat, producer: second")))


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


def engines(count: int) -> str:
    """An extractor with 64 custom metrics for each of so many engines."""
    configs = [
        {
            "name": f"e{i}",
            "customMetrics": [{"attributeKey": f"A{i}x{j}", "metricSpec": "m"} for j in range(64)],
        }
        for i in range(count)
    ]
    return json.dumps([{"type": "core-metrics-extractor", "parameters": {"engineConfigs": configs}}])


def test_more_attributes_than_endpoints_can_have_are_refused():
    def text(count: int) -> str:
        fed = "[{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]"
        plugins = f'[{{"type": "metrics-data-source"}}, {engines(count)[1:]}'
        return f"plugins: {plugins}\ndataLayer: {{sources: {fed}}}\n"

    assert len(load(text(2)).endpoint_attributes) == 128
    (problem,) = problems(text(3))
    assert problem.startswith("plugins: the extractors leave 384 attributes on endpoints, each counted with ")
    assert problem.endswith("at most 256 are kept: remove customMetrics that nobody reads")
