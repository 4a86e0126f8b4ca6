"""Every mistake a configuration can hold has a message of its own, with its place and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dataplane.config.problems import ConfigErrors
from epp.graph import load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from tests.support.plugins import TEST_REGISTRY

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"

CASES = {
    case["mistake"]: (case["config"], case["error"])
    for case in yaml.safe_load((Path(__file__).parents[2] / "vectors/config_errors.yaml").read_text())
}


def problems(text: str) -> list[str]:
    """What is wrong with a document below a correct head."""
    with pytest.raises(ConfigErrors) as caught:
        load_graph(HEAD + text, Handle(EndpointTable()), registry=TEST_REGISTRY)
    return [str(error) for error in caught.value.errors]


@pytest.mark.parametrize(("text", "message"), CASES.values(), ids=CASES)
def test_a_mistake_has_one_message(text: str, message: str):
    assert problems(text) == [message]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("kind: EndpointPickerConfig", "apiVersion: is missing; write llm-d.ai/v1alpha1"),
        ("apiVersion: llm-d.ai/v1alpha1", "kind: is missing; write EndpointPickerConfig"),
        (
            "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig",
            "apiVersion: is 'llm-d.ai/v1'; write llm-d.ai/v1alpha1",
        ),
        ("[]", "expected a mapping, got a list"),
    ],
    ids=["no version", "no kind", "other version", "no mapping"],
)
def test_a_wrong_envelope_has_one_message(head: str, message: str):
    with pytest.raises(ConfigErrors) as caught:
        load_graph(head, Handle(EndpointTable()), registry=TEST_REGISTRY)
    assert [str(error) for error in caught.value.errors] == [message]


def test_mistakes_of_every_phase_are_told_at_once():
    assert problems(
        """
featureGates: [dataLayer]
plugins:
- {type: load-aware-scorer, parameters: {treshold: 1}}
- {type: slo-headroom-tier-filter}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: mine}}
- {type: queue-scorer}
- {type: left-producer}
- {type: round-producer}
schedulingProfiles: [{name: a, plugins: [{pluginRef: queue-scorer, weight: -1}]}, {name: b}]
dataLayer: {injectDefaults: false}
"""
    ) == [
        "schedulingProfiles[0].plugins[0].weight: must be a finite number of at least 0, is -1.0",
        (
            "featureGates[0]: feature gate 'dataLayer' is unknown or unregistered; "
            "known are flowControl, haPopulateNonLeaderDatastore"
        ),
        'plugins[0].parameters.treshold: unknown field (did you mean "threshold"?)',
        (
            "plugins[1]: plugin type 'slo-headroom-tier-filter' is not registered: this build predicts no "
            "latencies; remove it, and score by load and prefix (token-load-scorer, prefix-cache-scorer)"
        ),
        (
            "plugins: no profile handler configured, but there are several profiles; add a plugin of type "
            "disagg-profile-handler or header-profile-handler"
        ),
        "plugins: 'prefix-cache-scorer' consumes PrefixCacheMatchInfo of 'mine', which is not configured",
        (
            "dataLayer: 'queue-scorer' reads metrics of the model servers, but no data source with an "
            "extractor is configured; list one or remove injectDefaults: false"
        ),
        "plugins: data producers wait for one another: left-producer -> round-producer -> left-producer",
    ]


def test_of_very_many_mistakes_of_plugins_the_first_are_told():
    found = problems("plugins:\n" + "".join(f"- type: nothing{i}\n" for i in range(300)))
    assert len(found) == 201
    assert found[199] == "plugins[199]: plugin type 'nothing199' is not registered"
    assert found[200] == "there are more mistakes; mend these first"


def test_what_follows_from_a_mistake_is_not_a_second_one():
    assert problems(
        """
plugins:
- {type: approx-prefix-cache-producer, name: mine, parameters: {autoTune: 3}}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: mine}}
- {type: queue-scorer}
- {type: single-profile-handlr}
schedulingProfiles: [{name: a, plugins: [{pluginRef: queue-scorer}]}, {name: b}]
dataLayer: {injectDefaults: false, sources: [{pluginRef: sorce, extractors: [{pluginRef: queue-scorer}]}]}
"""
    ) == [
        "plugins[0].parameters.autoTune: expected bool, got int",
        (
            "plugins[3]: plugin type 'single-profile-handlr' is not registered "
            '(did you mean "single-profile-handler"?)'
        ),
        "dataLayer.sources[0].pluginRef: references undefined plugin 'sorce'",
    ]


@pytest.mark.parametrize("digits", [20, 400])
@pytest.mark.parametrize(
    ("plugin", "parameter"),
    [("token-load-scorer", "queueThresholdTokens"), ("prefix-cache-scorer", "matchLengthScaleTokens"),
     ("active-request-scorer", "idleThreshold"), ("max-score-picker", "maxNumOfEndpoints")],
)  # fmt: skip
def test_a_count_beyond_64_bits_is_a_mistake(plugin: str, parameter: str, digits: int):
    text = HEAD + f"plugins: [{{type: {plugin}, parameters: {{{parameter}: {'9' * digits}}}}}]"
    with pytest.raises(ConfigErrors) as caught:
        load_graph(text, Handle(EndpointTable()))
    (error,) = caught.value.errors
    assert str(error) == f"plugins[0].parameters.{parameter}: expected int, got float"
