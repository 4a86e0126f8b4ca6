"""EndpointPickerConfig: what is read, what is refused, and what is only warned of."""

import pytest

from dataplane.config.epp import (
    DataLayerSpec,
    DataSourceSpec,
    EndpointPickerConfig,
    FlowControlSpec,
    PluginRef,
    PluginSpec,
    PriorityBandSpec,
    ProfilePlugin,
    RequestHandlerSpec,
    SchedulingProfileSpec,
    default_config,
    load_epp_config,
    parse_epp_config,
)
from dataplane.config.problems import ConfigErrors

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def problems(text: str) -> list[str]:
    """What is wrong with the document below a correct head."""
    return [str(problem) for problem in parse_epp_config(HEAD + text).problems]


def test_reads_every_section():
    config, warnings = load_epp_config(
        HEAD
        + """
featureGates: [flowControl=false, haPopulateNonLeaderDatastore]
plugins:
- type: queue-scorer
- name: fast
  type: queue-scorer
  parameters: {minSpread: 2}
- type: file-discovery
- type: utilization-detector
schedulingProfiles:
- name: p
  plugins:
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: fast
dataLayer:
  injectDefaults: false
  sources:
  - pluginRef: s
    extractors: [{pluginRef: x}]
  discovery: {pluginRef: file-discovery}
  crossReplicaSyncInterval: 200ms
flowControl:
  maxBytes: 1Gi
  maxRequests: 100
  defaultRequestTTL: 60s
  noEndpointRequestTTL: 0s
  defaultPriorityBand: {maxRequests: 5}
  priorityBands:
  - {priority: 10, maxBytes: 500M, fairnessPolicyRef: f, orderingPolicyRef: o}
  saturationDetector: {pluginRef: utilization-detector}
  enableEviction: true
requestHandler:
  parsers: [{pluginRef: openai-parser}]
"""
    )
    assert config == EndpointPickerConfig(
        api_version="llm-d.ai/v1alpha1",
        kind="EndpointPickerConfig",
        feature_gates=["flowControl=false", "haPopulateNonLeaderDatastore"],
        plugins=[
            PluginSpec(name="queue-scorer", type="queue-scorer"),
            PluginSpec(name="fast", type="queue-scorer", parameters={"minSpread": 2}),
            PluginSpec(name="file-discovery", type="file-discovery"),
            PluginSpec(name="utilization-detector", type="utilization-detector"),
        ],
        scheduling_profiles=[
            SchedulingProfileSpec(
                name="p",
                plugins=[
                    ProfilePlugin(plugin_ref="queue-scorer", weight=2.0),
                    ProfilePlugin(plugin_ref="fast"),
                ],
            )
        ],
        data_layer=DataLayerSpec(
            inject_defaults=False,
            sources=[DataSourceSpec(plugin_ref="s", extractors=[PluginRef(plugin_ref="x")])],
            discovery=PluginRef(plugin_ref="file-discovery"),
            cross_replica_sync_interval=0.2,
        ),
        flow_control=FlowControlSpec(
            max_bytes=1 << 30,
            max_requests=100,
            default_request_ttl=60.0,
            no_endpoint_request_ttl=0.0,
            default_priority_band=PriorityBandSpec(max_requests=5),
            priority_bands=[
                PriorityBandSpec(
                    priority=10, max_bytes=500_000_000, fairness_policy_ref="f", ordering_policy_ref="o"
                )
            ],
            saturation_detector=PluginRef(plugin_ref="utilization-detector"),
            enable_eviction=True,
        ),
        request_handler=RequestHandlerSpec(parsers=[PluginRef(plugin_ref="openai-parser")]),
    )
    assert warnings == [
        "dataLayer.crossReplicaSyncInterval has no effect: no state is shared between replicas",
        (
            "ignored because the feature gate flowControl is off: flowControl.maxBytes, "
            "flowControl.maxRequests, flowControl.defaultRequestTTL, flowControl.noEndpointRequestTTL, "
            "flowControl.defaultPriorityBand, flowControl.priorityBands, flowControl.enableEviction"
        ),
    ]


def test_no_document_means_the_built_in_default():
    config, warnings = load_epp_config("  \n# empty\n")
    assert config == default_config()
    assert warnings == []
    assert [(p.plugin_ref, p.weight) for p in config.scheduling_profiles[0].plugins] == [
        ("queue-scorer", 2.0),
        ("kv-cache-utilization-scorer", 2.0),
        ("prefix-cache-scorer", 3.0),
    ]


def test_a_document_with_a_head_only_is_not_the_default():
    config, _ = load_epp_config(HEAD)
    assert config.plugins == []


def test_json_is_read_as_well():
    config, _ = load_epp_config(
        '{"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": [{"type": "t"}]}'
    )
    assert config.plugins == [PluginSpec(name="t", type="t")]


def test_the_old_group_is_accepted_with_a_warning():
    _, warnings = load_epp_config(
        "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n"
    )
    assert warnings == [
        "apiVersion inference.networking.x-k8s.io/v1alpha1 is deprecated; use llm-d.ai/v1alpha1"
    ]


def test_deprecated_sections_move_and_the_new_place_wins():
    old = "plugins: [{type: d}]\nsaturationDetector: {pluginRef: d}\nparser: {pluginRef: old}\n"
    config, warnings = load_epp_config(HEAD + old)
    assert config.flow_control == FlowControlSpec(saturation_detector=PluginRef(plugin_ref="d"))
    assert config.request_handler.parsers == [PluginRef(plugin_ref="old")]
    assert (config.saturation_detector, config.parser) == (None, None)
    assert warnings[:2] == [
        "saturationDetector is deprecated; use flowControl.saturationDetector",
        "parser is deprecated; use requestHandler.parsers",
    ]
    new = "requestHandler: {parsers: [{pluginRef: new}]}\nflowControl: {saturationDetector: {pluginRef: e}}\n"
    config, warnings = load_epp_config(HEAD + old.replace("[{type: d}]", "[{type: d}, {type: e}]") + new)
    assert config.request_handler.parsers == [PluginRef(plugin_ref="new")]
    assert config.flow_control == FlowControlSpec(saturation_detector=PluginRef(plugin_ref="e"))
    assert warnings == [
        ("saturationDetector is deprecated and ignored; use flowControl.saturationDetector, which is there"),
        "parser is deprecated and ignored; use requestHandler.parsers, which is there",
    ]


def test_all_problems_are_reported_at_once():
    with pytest.raises(ConfigErrors) as caught:
        load_epp_config(
            """
apiVersion: v1
kind: Config
featureGates: [dataLayer, flowControl=perhaps]
plugin: []
plugins:
- type: a
  parameters: {x: 1}
- type: a
- name: nameless
- 3
- type: b
  type: c
schedulingProfiles:
- plugins:
  - weight: 1
- name: p
- name: p
  plugins: [{pluginRef: a, weight: -1}, {pluginRef: a, weight: .nan}, {pluginRef: a, weight: .inf}]
dataLayer:
  sources: [{extractors: [{}]}]
  discovery: {}
requestHandler: {parsers: [{}]}
flowControl:
  defaultRequestTTL: -1s
  maxRequests: -4
  priorityBands: [{priority: 1}, {priority: 1}, {}]
  saturationDetector: {pluginRef: nobody}
"""
        )
    assert [str(error) for error in caught.value.errors] == [
        "plugins[4].type: the key occurs twice on line 13; remove one",
        'plugin: unknown field (did you mean "plugins"?)',
        "plugins[3]: expected a mapping, got a number",
        "schedulingProfiles[2].plugins[1].weight: must be a finite number",
        "schedulingProfiles[2].plugins[2].weight: must be a finite number",
        "flowControl.maxRequests: must not be negative",
        "apiVersion: is 'v1'; write llm-d.ai/v1alpha1",
        "kind: is 'Config'; write EndpointPickerConfig",
        "plugins[1]: duplicate plugin name 'a'; give one of them a `name`",
        "plugins[2]: plugin 'nameless' is missing a type",
        "schedulingProfiles[0]: the profile is missing a name",
        "schedulingProfiles[0].plugins[0]: the entry is missing a 'pluginRef'",
        "schedulingProfiles[2]: duplicate profile name 'p'",
        "schedulingProfiles[2].plugins[0].weight: must be a finite number of at least 0, is -1.0",
        "dataLayer.discovery: is missing a 'pluginRef'",
        "dataLayer.sources[0]: is missing a 'pluginRef'",
        "dataLayer.sources[0].extractors[0]: is missing a 'pluginRef'",
        "requestHandler.parsers[0]: is missing a 'pluginRef'",
        (
            "featureGates[0]: feature gate 'dataLayer' is unknown or unregistered; "
            "known are flowControl, haPopulateNonLeaderDatastore"
        ),
        "featureGates[1]: 'perhaps' is neither true nor false",
        "flowControl.defaultRequestTTL: must not be negative; 0s means never",
        "flowControl.priorityBands[1].priority: duplicate priority level 1",
        "flowControl.priorityBands[2].priority: is required",
        "flowControl.saturationDetector.pluginRef: saturation detector references undefined plugin 'nobody'",
    ]
    assert str(caught.value).startswith("24 problems:\n  - plugins[4].type: the key occurs twice")


def test_a_single_problem_reads_as_one():
    with pytest.raises(ConfigErrors) as caught:
        load_epp_config(HEAD + "pluginz: []")
    assert str(caught.value) == 'pluginz: unknown field (did you mean "plugins"?)'
    assert caught.value.path == "pluginz"


@pytest.mark.parametrize("gate", ["flowControl", "flowControl=true", " flowControl = T ", "flowControl=1"])
def test_flow_control_is_refused_while_there_is_none(gate: str):
    assert problems(f"featureGates: ['{gate}']\nflowControl: {{}}") == [
        "featureGates: this build has no flow control yet; remove the gate to run without queueing"
    ]


def test_a_text_that_is_no_mapping_is_refused_once():
    parsed = parse_epp_config("just words")
    assert [str(problem) for problem in parsed.problems] == ["expected a mapping, got text"]
    assert not parsed.readable


def test_broken_yaml_names_line_and_column():
    parsed = parse_epp_config(HEAD + "plugins: [")
    assert [str(p) for p in parsed.problems] == [
        "line 3, column 11: expected the node content, but found '<stream end>'"
    ]
    assert not parsed.readable


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "plugins: [" + "{type: t}," * 1001 + "]",
            "plugins: has 1001 entries; at most 1000 are allowed",
        ),
        (
            "schedulingProfiles: [" + "{name: p}," * 101 + "]",
            "schedulingProfiles: has 101 entries; at most 100 are allowed",
        ),
        (
            "schedulingProfiles: [{name: p, plugins: [" + "{pluginRef: r}," * 1001 + "]}]",
            "schedulingProfiles[0].plugins: has 1001 entries; at most 1000 are allowed",
        ),
    ],
    ids=["plugins", "profiles", "plugins of a profile"],
)
def test_lists_that_would_hold_the_process_up_are_refused_unread(text: str, problem: str):
    parsed = parse_epp_config(HEAD + text)
    assert ([str(found) for found in parsed.problems], parsed.readable) == ([problem], False)


def test_lists_of_the_allowed_length_are_read():
    text = "plugins: [" + ",".join(f"{{type: t, name: n{i}}}" for i in range(1000)) + "]"
    assert len(load_epp_config(HEAD + text)[0].plugins) == 1000


def test_of_very_many_mistakes_the_first_are_told():
    text = "\n".join(f"field{i}: 1" for i in range(250))
    with pytest.raises(ConfigErrors) as caught:
        load_epp_config(HEAD + text)
    assert len(caught.value.errors) == 201
    assert str(caught.value.errors[-1]) == "there are more mistakes; mend these first"
