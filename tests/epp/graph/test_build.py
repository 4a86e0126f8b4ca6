"""The plugin graph: defaults are filled in a fixed order, and all mistakes are reported together."""

from typing import Any

import pytest

from dataplane.config.epp import EndpointPickerConfig, default_config
from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from epp.graph import PluginGraph, build_graph, load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.discovery.file import FileDiscovery
from epp.plugins.parsers.anthropic import AnthropicParser
from epp.plugins.parsers.openai import OpenAIParser
from epp.plugins.parsers.passthrough import PassthroughParser
from epp.plugins.parsers.vllm_http import VllmHttpParser
from tests.support.plugins import TEST_REGISTRY

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def load(text: str, **options: Any) -> PluginGraph:
    """The graph of a document below a correct head; test plugins may be used."""
    return load_graph(HEAD + text, Handle(EndpointTable()), registry=TEST_REGISTRY, **options)


def problems(text: str, **options: Any) -> list[str]:
    """What is wrong with a document."""
    with pytest.raises(ConfigErrors) as caught:
        load(text, **options)
    return [str(error) for error in caught.value.errors]


def names(plugins: Any) -> list[str]:
    return [plugin.name.name for plugin in plugins]


def test_the_built_in_default_is_complete():
    graph = load_graph("", Handle(EndpointTable()))
    assert list(graph.instances) == [
        "queue-scorer",
        "kv-cache-utilization-scorer",
        "prefix-cache-scorer",
        "metrics-data-source",
        "core-metrics-extractor",
        "openai-parser",
        "anthropic-parser",
        "vllmhttp-parser",
        "passthrough-parser",
        "max-score-picker",
        "single-profile-handler",
        "approx-prefix-cache-producer",
        "token-producer",
        "utilization-detector",
    ]
    profile = graph.profiles["default"]
    assert [(name, weight) for name, _, weight in profile.scorers] == [
        ("queue-scorer", 2.0),
        ("kv-cache-utilization-scorer", 2.0),
        ("prefix-cache-scorer", 3.0),
    ]
    assert profile.picker is graph.instances["max-score-picker"]
    assert graph.profile_handler is graph.instances["single-profile-handler"]
    assert names(graph.producers) == ["token-producer", "approx-prefix-cache-producer"]
    assert names(graph.pre_requests) == ["approx-prefix-cache-producer"]
    assert names(graph.first_byte_observers) == ["approx-prefix-cache-producer"]
    assert names(graph.response_observers) == ["approx-prefix-cache-producer"]
    assert graph.endpoint_observers == ()
    assert [(source.name.name, names(extractors)) for source, extractors in graph.sources] == [
        ("metrics-data-source", ["core-metrics-extractor"])
    ]
    assert names(graph.sources[0][0].extractors) == ["core-metrics-extractor"]
    assert graph.discovery is None
    assert graph.warnings == ()
    assert graph.config == default_config()


def test_two_graphs_of_one_handle_share_no_plugin():
    handle = Handle(EndpointTable())
    first, second = load_graph("", handle), load_graph("", handle)
    assert not {id(p) for p in first.instances.values()} & {id(p) for p in second.instances.values()}
    assert handle.plugins == {}


def test_parsers_are_chosen_by_path():
    graph = load("")
    assert isinstance(graph.parser_for("/v1/chat/completions"), OpenAIParser)
    assert isinstance(graph.parser_for("/v1/messages"), AnthropicParser)
    assert isinstance(graph.parser_for("/v1/messages/count_tokens"), AnthropicParser)
    assert isinstance(graph.parser_for("/inference/v1/generate"), VllmHttpParser)
    assert isinstance(graph.parser_for("/generate"), PassthroughParser)
    assert isinstance(graph.parser_for("/metrics"), PassthroughParser)


def test_a_listed_parser_may_be_a_type_and_gets_no_company():
    graph = load("requestHandler: {parsers: [{pluginRef: passthrough-parser}]}")
    assert isinstance(graph.parser_for("/v1/chat/completions"), PassthroughParser)
    assert "openai-parser" not in graph.instances


def test_every_role_of_a_plugin_is_seen():
    graph = load("plugins: [{type: watcher}]")
    for role in (
        graph.pre_requests,
        graph.first_byte_observers,
        graph.response_observers,
        graph.endpoint_observers,
    ):
        assert names(role) == ["watcher"]


def test_discovery_is_found(tmp_path: Any):
    path = tmp_path / "endpoints.yaml"
    path.write_text("endpoints: [{name: a, address: 10.0.0.1, port: '8000'}]")
    graph = load(
        f"plugins: [{{type: file-discovery, parameters: {{path: {path}}}}}]\n"
        "dataLayer: {discovery: {pluginRef: file-discovery}}"
    )
    assert isinstance(graph.discovery, FileDiscovery)


def test_a_plugin_sees_the_ones_built_before_it_and_its_raw_parameters():
    graph = load("plugins: [{type: all-filter}, {type: fussy-filter, parameters: {size: 3}}]")
    handle = graph.instances["fussy-filter"].handle  # type: ignore[attr-defined]
    assert "all-filter" in handle.plugins
    assert handle.parameters == {"size": 3}


def test_deprecated_types_and_warnings_of_plugins_are_passed_on():
    graph = load(
        "plugins: [{type: tokenizer}, {type: fussy-filter, parameters: {size: 11}}]\n"
        "parser: {pluginRef: openai-parser}"
    )
    assert graph.instances["tokenizer"].name == ("token-producer", "tokenizer")
    assert list(graph.warnings) == [
        "parser is deprecated; use requestHandler.parsers",
        "plugins[0]: plugin type 'tokenizer' is deprecated; use 'token-producer'",
        "plugin 'fussy-filter': size is large",
    ]


def test_mistakes_of_text_plugins_and_references_come_together():
    assert problems(
        """
extra: 1
plugins:
- type: queue-scorer
  parameters: {minSpred: 3, minSpread: -1}
- type: queue-scorrer
- type: alpha-filter
- {type: fussy-filter, name: negative, parameters: {size: -1}}
- {type: fussy-filter, name: empty, parameters: {size: 0}}
- type: all-filter
schedulingProfiles:
- name: p
  plugins: [{pluginRef: queue-scorer}, {pluginRef: random-picker}, {pluginRef: al-filter}, {}]
requestHandler: {parsers: [{pluginRef: all-filter}, {pluginRef: nope}]}
dataLayer:
  discovery: {pluginRef: all-filter}
  peerDiscovery: {pluginRef: all-filter}
  crossReplicaSyncerPluginRef: all-filter
flowControl: {saturationDetector: {pluginRef: all-filter}}
"""
    ) == [
        (
            "extra: unknown field; known here: apiVersion, kind, featureGates, plugins, schedulingProfiles, "
            "dataLayer, flowControl, requestHandler, resilience, saturationDetector, parser, "
            "scheduler"
        ),
        "schedulingProfiles[0].plugins[3]: the entry is missing a 'pluginRef'",
        "dataLayer.peerDiscovery: this build has no peer discovery plugin; remove it",
        "dataLayer.crossReplicaSyncerPluginRef: this build shares no state between replicas; remove it",
        'plugins[0].parameters.minSpred: unknown field (did you mean "minSpread"?)',
        "plugins[0].parameters.minSpread: expected float >= 0.0",
        "plugins[1]: plugin type 'queue-scorrer' is not registered (did you mean \"queue-scorer\"?)",
        (
            "plugins[2]: plugin 'alpha-filter' (type: 'alpha-filter') has Alpha stability level, "
            "but command line flag --allow-experimental-plugins is not set"
        ),
        "plugins[3].parameters.size: must not be negative",
        "plugins[4]: failed to create plugin 'empty' (type: fussy-filter): nothing to filter",
        "requestHandler.parsers[0].pluginRef: the plugin 'all-filter' is not a parser plugin",
        "requestHandler.parsers[1].pluginRef: references undefined plugin 'nope'",
        (
            "schedulingProfiles[0].plugins[1].pluginRef: references undefined plugin 'random-picker'; "
            "add `- type: random-picker` to plugins"
        ),
        (
            "schedulingProfiles[0].plugins[2].pluginRef: references undefined plugin 'al-filter' "
            '(did you mean "all-filter"?)'
        ),
        "dataLayer.discovery.pluginRef: the plugin 'all-filter' is not an endpoint discovery",
        "flowControl.saturationDetector.pluginRef: the plugin 'all-filter' is not a saturation detector",
    ]


def test_experimental_plugins_can_be_allowed():
    assert "alpha-filter" in load("plugins: [{type: alpha-filter}]", allow_experimental=True).instances


def test_unreadable_text_is_all_there_is_to_say():
    with pytest.raises(ConfigErrors) as caught:
        load_graph("plugins: [", Handle(EndpointTable()))
    assert len(caught.value.errors) == 1


def test_a_configuration_object_can_be_built_directly():
    graph = build_graph(EndpointPickerConfig(), Handle(EndpointTable()))
    assert list(graph.profiles) == ["default"]


def test_config_errors_are_config_errors():
    with pytest.raises(ConfigError):
        load("plugins: [{type: nope}]")


def test_a_name_that_a_default_needs_cannot_be_taken_by_another_type():
    assert problems("plugins: [{type: all-filter, name: max-score-picker}]") == [
        (
            "the name 'max-score-picker' is needed for the plugin of that type; "
            "rename the plugin of type 'all-filter'"
        )
    ]


def test_a_plugin_with_a_defect_costs_its_configuration_only(caplog: pytest.LogCaptureFixture):
    text = HEAD + "plugins: [{type: fussy-filter, parameters: {size: 13}}, {type: fussy-filter, name: x}]"
    with pytest.raises(ConfigErrors) as caught:
        load_graph(text, Handle(EndpointTable()), registry=TEST_REGISTRY)
    assert [str(error) for error in caught.value.errors] == [
        "plugins[0]: failed to create plugin 'fussy-filter' (type: fussy-filter): KeyError: 'luck'"
    ]
    assert "cannot be created" in caplog.text
