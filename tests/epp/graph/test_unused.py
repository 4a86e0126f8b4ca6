"""A plugin that has no effect, because nothing refers to it, is warned of."""

from __future__ import annotations

import pytest

from epp.graph import load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from tests.support.plugins import TEST_REGISTRY

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def warnings(text: str) -> list[str]:
    """What a document below a correct head is warned of."""
    return list(load_graph(HEAD + text, Handle(EndpointTable()), registry=TEST_REGISTRY).warnings)


@pytest.mark.parametrize(
    ("plugin", "missing"),
    [
        ("queue-scorer", "no scheduling profile uses it"),
        ("all-filter", "no scheduling profile uses it"),
        ("random-picker", "no scheduling profile uses it"),
        ("no-hit-lru-scorer", "no scheduling profile uses it"),
        ("sglanghttp-parser", "requestHandler.parsers does not list it"),
        ("text-source", "dataLayer.sources does not list it"),
        ("text-extractor", "no entry of dataLayer.sources lists it"),
        ("nowhere", "dataLayer.discovery does not refer to it"),
        ("always-disagg-pd-decider", "no profile handler names it"),
    ],
)
def test_a_plugin_nothing_refers_to_is_named(plugin: str, missing: str):
    profile = "schedulingProfiles: [{name: p, plugins: [{pluginRef: max-score-picker}]}]"
    assert warnings(f"plugins: [{{type: max-score-picker}}, {{type: {plugin}}}]\n{profile}") == [
        f"plugin '{plugin}' is configured, but {missing}"
    ]


def test_plugins_that_act_by_being_there_are_not_named():
    assert warnings("plugins: [{type: watcher}, {type: right-producer}, {type: token-producer}]") == []


def test_plugins_that_are_referred_to_are_not_named():
    assert (
        warnings(
            """
plugins:
- {type: text-source}
- {type: text-extractor}
- {type: nowhere}
- {type: openai-parser, name: mine}
- {type: always-disagg-pd-decider}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
schedulingProfiles: [{name: decode}]
requestHandler: {parsers: [{pluginRef: mine}]}
dataLayer:
  sources: [{pluginRef: text-source, extractors: [{pluginRef: text-extractor}]}]
  discovery: {pluginRef: nowhere}
"""
        )
        == []
    )


def test_a_profile_whose_weights_are_all_zero_is_named():
    profile = "[{name: p, plugins: [{pluginRef: queue-scorer, weight: 0}, {pluginRef: load-aware-scorer%s}]}]"
    plugins = "plugins: [{type: queue-scorer}, {type: load-aware-scorer}]\nschedulingProfiles: "
    assert warnings(plugins + profile % ", weight: 0") == [
        "schedulingProfiles[0]: every weight is 0, so all endpoints score alike"
    ]
    assert warnings(plugins + profile % "") == []


def test_a_plugin_twice_in_a_profile_is_named():
    assert warnings(
        "plugins: [{type: queue-scorer}]\n"
        "schedulingProfiles: [{name: p, plugins: [{pluginRef: queue-scorer}, {pluginRef: queue-scorer}]}]"
    ) == ["schedulingProfiles[0].plugins[1]: 'queue-scorer' is in the profile twice, and counts twice"]


def test_settings_without_effect_are_named():
    assert warnings(
        "featureGates: [haPopulateNonLeaderDatastore=false]\n"
        "dataLayer: {crossReplicaSyncInterval: 1s}\n"
        "flowControl: {maxRequests: 5, defaultPriorityBand: {priority: 3}, priorityBands: []}"
    ) == [
        "dataLayer.crossReplicaSyncInterval has no effect: no state is shared between replicas",
        (
            "featureGates: haPopulateNonLeaderDatastore=false has no effect: every replica knows its "
            "endpoints, because none is a leader"
        ),
        (
            "ignored because the feature gate flowControl is off: flowControl.maxRequests, "
            "flowControl.defaultPriorityBand"
        ),
        "flowControl.defaultPriorityBand.priority has no effect: the band is a template",
    ]
