"""Data producers: missing ones are created, all run after what they need."""

from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from epp.graph import PluginGraph, load_graph
from epp.interfaces.attributes import PREFIX_MATCH
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


def names(plugins: Any) -> list[str]:
    return [plugin.name.name for plugin in plugins]


def test_missing_producers_are_created_with_theirs():
    graph = load("plugins: [{type: prefix-cache-scorer}]")
    assert names(graph.producers) == ["token-producer", "approx-prefix-cache-producer"]
    assert names(load("plugins: [{type: active-request-scorer}]").producers) == [
        "token-producer",
        "inflight-load-producer",
    ]


def test_nothing_is_created_that_nobody_needs():
    assert load("plugins: [{type: queue-scorer}]").producers == ()


def test_configured_producers_are_used_and_ordered_by_their_data():
    graph = load(
        """
plugins:
- type: inflight-load-producer
- {type: approx-prefix-cache-producer, parameters: {lruCapacityPerServer: 5}}
- {type: token-producer, name: tokens}
- type: prefix-cache-scorer
- type: left-producer
- type: right-producer
"""
    )
    assert names(graph.producers) == [
        "tokens",
        "right-producer",
        "inflight-load-producer",
        "approx-prefix-cache-producer",
        "left-producer",
    ]
    assert "token-producer" not in graph.instances


def test_named_producers_serve_those_who_name_them():
    graph = load(
        """
plugins:
- {type: approx-prefix-cache-producer, name: small, parameters: {blockSizeTokens: 32}}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: small}}
"""
    )
    assert names(graph.producers) == ["token-producer", "small"]
    assert list(graph.producers[1].produces) == [PREFIX_MATCH.by("small")]
    assert graph.warnings == ()


def test_a_named_producer_nobody_names_is_not_the_default_and_that_is_said():
    graph = load("plugins: [{type: approx-prefix-cache-producer, name: small}, {type: prefix-cache-scorer}]")
    assert names(graph.producers) == ["token-producer", "small", "approx-prefix-cache-producer"]
    assert list(graph.warnings) == [
        (
            "'prefix-cache-scorer' reads PrefixCacheMatchInfo of the default producer, so "
            "'approx-prefix-cache-producer' is created beside 'small'; name the producer in the parameters "
            "of 'prefix-cache-scorer' to use that one"
        )
    ]


def test_a_producer_that_is_not_there_is_named():
    scorer = "plugins: [{type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: %s}}]"
    assert problems(scorer % "mine") == [
        "plugins: 'prefix-cache-scorer' consumes PrefixCacheMatchInfo of 'mine', which is not configured"
    ]
    assert problems((scorer % "token-producer").replace("}}]", "}}, {type: token-producer}]")) == [
        (
            "plugins: 'prefix-cache-scorer' consumes PrefixCacheMatchInfo of 'token-producer', "
            "which does not produce it"
        )
    ]


def test_data_without_default_producer_is_named():
    assert problems("plugins: [{type: left-filter}]") == [
        "no default producer found for missing data key Left, consumed by 'left-filter'"
    ]


def test_producers_that_wait_for_one_another_are_refused():
    (problem,) = problems("plugins: [{type: left-producer}, {type: round-producer}]")
    assert problem.startswith("plugins: data producers wait for one another: ")
    assert {"left-producer", "round-producer"} <= set(problem.replace(" -> ", " ").split())


def test_readers_of_engine_metrics_need_a_data_source():
    without = "dataLayer: {injectDefaults: false}\n"
    assert problems(without + "plugins: [{type: queue-scorer}]") == [
        (
            "dataLayer: 'queue-scorer' reads metrics of the model servers, but no data source with an "
            "extractor is configured; list one or remove injectDefaults: false"
        )
    ]
    graph = load(without + "plugins: [{type: active-request-scorer}]")
    assert graph.sources == ()
