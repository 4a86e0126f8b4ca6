"""The tree form of concept pages builds the usual graph; mistakes and aliases are told at their place."""

from __future__ import annotations

import pytest

from dataplane.config.problems import ConfigErrors
from epp.graph import PluginGraph, load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
AT = "scheduler.profileHandler.primaryProfile"


def load(profile: str) -> PluginGraph:
    """The graph of a tree with this profile."""
    tree = f"scheduler: {{profileHandler: {{type: single-profile-handler, primaryProfile: {profile}}}}}"
    return load_graph(HEAD + tree, Handle(EndpointTable()))


def test_names_of_concept_pages_are_understood_with_warnings():
    graph = load(
        "{filters: [decode-endpoints-filter, prefill-endpoints-filter, {type: prefix-cache-affinity-filter, "
        "stickinessThreshold: 0.5}], scorers: [{name: queue-depth-scorer, weight: 2}, "
        "{name: kv-cache-scorer}], picker: {type: max-score-picker, maxNumOfEndpoints: 3}}"
    )
    profile = graph.profiles["default"]
    assert [plugin.name.type for _, plugin in profile.filters] == [  # type: ignore[attr-defined]
        "decode-filter",
        "prefill-filter",
        "prefix-cache-affinity-filter",
    ]
    assert [(name, weight) for name, _, weight in profile.scorers] == [
        ("queue-depth-scorer", 2.0),
        ("kv-cache-scorer", 1.0),
    ]
    assert profile.picker is graph.instances["max-score-picker"]
    assert graph.profile_handler is graph.instances["single-profile-handler"]
    assert graph.warnings[1:] == (
        f"{AT}.filters[0]: plugin type 'decode-endpoints-filter' is deprecated; use 'decode-filter'",
        f"{AT}.filters[1]: plugin type 'prefill-endpoints-filter' is deprecated; use 'prefill-filter'",
        (
            "plugin 'prefix-cache-affinity-filter': stickinessThreshold is accepted for affinityThreshold; "
            "use that name"
        ),
        f"{AT}.scorers[0]: plugin type 'queue-depth-scorer' is deprecated; use 'queue-scorer'",
        f"{AT}.scorers[1]: plugin type 'kv-cache-scorer' is deprecated; use 'kv-cache-utilization-scorer'",
    )


def test_mistakes_of_plugins_are_told_at_their_place_in_the_tree():
    with pytest.raises(ConfigErrors) as caught:
        load(
            """{
              filters: [{type: decode-filter, x: 1}],
              scorers: [{type: queue-scorer, parameters: {minSpred: 1}}, nothing],
              picker: {type: max-score-picker, maxNumOfEndpoints: many}
            }"""
        )
    assert [str(error) for error in caught.value.errors] == [
        f"{AT}.filters[0].x: unknown field; there are none here",
        f'{AT}.scorers[0].parameters.minSpred: unknown field (did you mean "minSpread"?)',
        f"{AT}.scorers[1]: plugin type 'nothing' is not registered",
        f"{AT}.picker.maxNumOfEndpoints: expected int, got str",
    ]
