"""The tree form of concept pages becomes plugins and a profile; its mistakes are told where they stand."""

import pytest

from dataplane.config.epp import PluginSpec, ProfilePlugin, load_epp_config, parse_epp_config
from dataplane.config.epp_nested import Origins

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
TREE = HEAD + "scheduler:\n  profileHandler:\n    type: single-profile-handler\n    primaryProfile:\n"
WARNING = "scheduler is the form of concept pages; write plugins and schedulingProfiles"


def problems(profile: str) -> list[str]:
    """What is wrong with the profile of a tree."""
    return [str(problem) for problem in parse_epp_config(TREE + profile).problems]


def test_a_tree_becomes_plugins_and_a_profile_in_order():
    config, warnings = load_epp_config(
        TREE
        + """
      filters:
      - decode-filter
      - {type: prefix-cache-affinity-filter, stickinessThreshold: 0.7}
      scorers:
      - {name: queue-depth-scorer, weight: 2}
      - {name: near, type: load-aware-scorer, weight: 0.5, parameters: {threshold: 64}}
      - name: prefix-cache-scorer
      picker: {type: weighted-random-picker, maxNumOfEndpoints: 2}
"""
    )
    assert warnings == [WARNING]
    assert config.scheduler is None
    assert config.plugins == [
        PluginSpec(name="single-profile-handler", type="single-profile-handler"),
        PluginSpec(name="decode-filter", type="decode-filter"),
        PluginSpec(
            name="prefix-cache-affinity-filter",
            type="prefix-cache-affinity-filter",
            parameters={"stickinessThreshold": 0.7},
        ),
        PluginSpec(name="queue-depth-scorer", type="queue-depth-scorer"),
        PluginSpec(name="near", type="load-aware-scorer", parameters={"threshold": 64}),
        PluginSpec(name="prefix-cache-scorer", type="prefix-cache-scorer"),
        PluginSpec(
            name="weighted-random-picker", type="weighted-random-picker", parameters={"maxNumOfEndpoints": 2}
        ),
    ]
    (profile,) = config.scheduling_profiles
    assert profile.name == "default"
    assert profile.plugins == [
        ProfilePlugin(plugin_ref="decode-filter"),
        ProfilePlugin(plugin_ref="prefix-cache-affinity-filter"),
        ProfilePlugin(plugin_ref="queue-depth-scorer", weight=2.0),
        ProfilePlugin(plugin_ref="near", weight=0.5),
        ProfilePlugin(plugin_ref="prefix-cache-scorer"),
        ProfilePlugin(plugin_ref="weighted-random-picker"),
    ]


def test_plugins_configured_above_are_referred_to_by_name():
    config, _ = load_epp_config(
        HEAD
        + """
plugins:
- {type: queue-scorer, name: queue, parameters: {minSpread: 1}}
- type: single-profile-handler
scheduler:
  profileHandler:
    type: single-profile-handler
    primaryProfile:
      scorers: [{name: queue, weight: 3}]
"""
    )
    assert [spec.name for spec in config.plugins] == ["queue", "single-profile-handler"]
    assert config.scheduling_profiles[0].plugins == [ProfilePlugin(plugin_ref="queue", weight=3.0)]


def test_a_plugin_that_filters_and_scores_is_one_instance():
    config, _ = load_epp_config(
        TREE
        + """
      filters: [context-length-aware, all]
      scorers: [{name: context-length-aware, weight: 2}]
"""
    )
    assert [spec.name for spec in config.plugins][1:] == ["context-length-aware", "all"]
    assert config.scheduling_profiles[0].plugins == [
        ProfilePlugin(plugin_ref="context-length-aware", weight=2.0),
        ProfilePlugin(plugin_ref="all"),
    ]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("scheduler: {}", ["scheduler.profileHandler: is required"]),
        ("scheduler: {profileHandler: {}}", ["scheduler.profileHandler.primaryProfile: is required"]),
        (
            "scheduler: {profileHandler: {primaryProfil: {}}}",
            [
                ('scheduler.profileHandler.primaryProfil: unknown field (did you mean "primaryProfile"?)'),
                "scheduler.profileHandler.primaryProfile: is required",
            ],
        ),
        (
            "schedulingProfiles: [{name: p}]\nscheduler: {profileHandler: {primaryProfile: {}}}",
            ["scheduler: excludes schedulingProfiles; move the plugins of one to the other"],
        ),
        (
            "scheduler: {profileHandler: {parameters: {x: 1}, primaryProfile: {}}}",
            ["scheduler.profileHandler.parameters: give scheduler.profileHandler.type along with them"],
        ),
        ("scheduler: 3", ["scheduler: expected a mapping, got a number"]),
    ],
)
def test_a_tree_that_is_not_whole_is_refused(tree: str, expected: list[str]):
    assert [str(problem) for problem in parse_epp_config(HEAD + tree).problems] == expected


def test_mistakes_of_entries_are_told_at_their_place():
    at = "scheduler.profileHandler.primaryProfile"
    assert problems(
        """
      filters: [3, {}, {type: 7}]
      scorers:
      - {type: a, weight: heavy}
      - {type: b, weight: -1}
      - {type: a, parameters: {x: 1}}
      - {type: c, parameters: 4}
      - {type: d, parameters: {}, threshold: 4}
"""
    ) == [
        f"{at}.filters[0]: expected a plugin type or a mapping",
        f"{at}.filters[1]: needs a `type` or a `name`, as text",
        f"{at}.filters[2]: needs a `type` or a `name`, as text",
        f"{at}.scorers[0].weight: expected a number",
        f"{at}.scorers[2]: plugin 'a' is configured elsewhere; set its parameters there",
        f"{at}.scorers[3].parameters: expected a mapping",
        f"{at}.scorers[4].threshold: stands beside `parameters`; move it there",
        f"{at}.scorers[1].weight: must be a finite number of at least 0, is -1.0",
    ]


def test_the_longest_translated_path_counts():
    origins = Origins({"plugins[1]": "here", "plugins[1].parameters": "there"})
    assert origins.of("plugins[1].parameters.x[2]") == "there.x[2]"
    assert origins.of("plugins[1].name") == "here.name"
    assert origins.of("plugins[12]") == "plugins[12]"
    assert origins.of("") == ""
    assert origins.of_warning("plugins[1]: old: new") == "here: old: new"
    assert origins.of_warning("no path") == "no path"


def test_a_deprecated_section_is_named_where_it_stands():
    parsed = parse_epp_config(HEAD + "parser: {}\nsaturationDetector: {pluginRef: nobody}")
    assert [str(problem) for problem in parsed.problems] == [
        "parser: is missing a 'pluginRef'",
        "saturationDetector.pluginRef: saturation detector references undefined plugin 'nobody'",
    ]
