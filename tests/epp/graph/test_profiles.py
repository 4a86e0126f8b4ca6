"""Scheduling profiles and their handler: configured, defaulted, refused."""

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


def test_without_profiles_one_uses_every_filter_scorer_and_picker_in_order():
    profile = load(
        "plugins: [{type: queue-scorer}, {type: random-picker}, {type: filter-and-scorer}, "
        "{type: all-filter}, {type: load-aware-scorer}]"
    ).profiles["default"]
    assert [name for name, _ in profile.filters] == ["filter-and-scorer", "all-filter"]
    assert [(name, weight) for name, _, weight in profile.scorers] == [
        ("queue-scorer", 1.0),
        ("filter-and-scorer", 1.0),
        ("load-aware-scorer", 1.0),
    ]
    assert profile.picker.name.name == "random-picker"  # type: ignore[attr-defined]


def test_nothing_configured_still_picks():
    graph = load("")
    assert list(graph.profiles) == ["default"]
    assert graph.profiles["default"].scorers == ()
    assert graph.profiles["default"].picker is graph.instances["max-score-picker"]


def test_weights_default_to_one_and_filters_keep_the_profiles_order():
    profile = load(
        """
plugins: [{type: all-filter}, {type: filter-and-scorer}, {type: queue-scorer}]
schedulingProfiles:
- name: p
  plugins:
  - {pluginRef: filter-and-scorer, weight: 0}
  - {pluginRef: all-filter}
  - {pluginRef: queue-scorer}
"""
    ).profiles["p"]
    assert [name for name, _ in profile.filters] == ["filter-and-scorer", "all-filter"]
    assert [(name, weight) for name, _, weight in profile.scorers] == [
        ("filter-and-scorer", 0.0),
        ("queue-scorer", 1.0),
    ]


def test_a_profile_without_picker_gets_the_first_configured_one():
    graph = load(
        """
plugins: [{type: weighted-random-picker}, {type: random-picker}, {type: many-handler}]
schedulingProfiles:
- name: a
- name: b
  plugins: [{pluginRef: random-picker}]
"""
    )
    assert graph.profiles["a"].picker is graph.instances["weighted-random-picker"]
    assert graph.profiles["b"].picker is graph.instances["random-picker"]
    assert "max-score-picker" not in graph.instances


def test_two_pickers_in_one_profile_are_refused():
    pickers = "plugins: [{type: max-score-picker}, {type: random-picker}]\n"
    expected = [
        (
            "schedulingProfiles[0]: profile 'default' has several pickers: 'max-score-picker', "
            "'random-picker'; keep one"
        )
    ]
    assert problems(pickers) == expected
    listed = (
        "schedulingProfiles: [{name: default, plugins: "
        "[{pluginRef: max-score-picker}, {pluginRef: random-picker}]}]"
    )
    assert problems(pickers + listed) == expected


def test_what_does_nothing_in_a_profile_is_warned_of():
    graph = load(
        """
plugins: [{type: max-score-picker}, {type: queue-scorer}, {type: token-producer}]
schedulingProfiles:
- name: p
  plugins: [{pluginRef: max-score-picker, weight: 2}, {pluginRef: token-producer}]
"""
    )
    assert list(graph.warnings) == [
        "schedulingProfiles[0].plugins[0]: the weight is ignored, 'max-score-picker' is not a scorer",
        "schedulingProfiles[0].plugins[1]: 'token-producer' does nothing here: no filter, scorer or picker",
        "plugin 'queue-scorer' is configured, but no scheduling profile uses it",
    ]


def test_several_profiles_need_a_handler():
    profiles = "schedulingProfiles: [{name: a}, {name: b}]"
    assert problems(profiles) == [
        (
            "plugins: no profile handler configured, but there are several profiles; add a plugin of type "
            "disagg-profile-handler or header-profile-handler"
        )
    ]
    assert problems("plugins: [{type: single-profile-handler}]\n" + profiles) == [
        "schedulingProfiles: single-profile-handler cannot support multiple scheduling profiles, got a, b"
    ]
    graph = load("plugins: [{type: many-handler}]\n" + profiles)
    assert graph.profile_handler is graph.instances["many-handler"]


def test_a_handler_may_refuse_profiles_by_their_place():
    assert problems(
        "plugins: [{type: many-handler}]\nschedulingProfiles: [{name: a}, {name: muchtoolong}]"
    ) == ["schedulingProfiles[1].name: the name is too long"]


def test_two_handlers_are_refused():
    assert problems("plugins: [{type: many-handler}, {type: single-profile-handler}]") == [
        "plugins: multiple profile handlers found: 'many-handler', 'single-profile-handler'; keep one"
    ]


def test_weights_whose_totals_could_overflow_are_refused():
    text = """
plugins: [{type: queue-scorer}, {type: load-aware-scorer}]
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer, weight: 6.0e+99}, {pluginRef: load-aware-scorer, weight: 6.0e+99}]
"""
    assert problems(text) == [
        "schedulingProfiles[0]: the weights add up to more than 1e+100; use smaller ones"
    ]
    assert load(text.replace("6.0e+99", "5.0e+99")).profiles["default"].scorers
