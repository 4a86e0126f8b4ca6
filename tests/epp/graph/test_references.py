"""Plugins whose parameters name other plugins are built after these, and mistakes are said at their place."""

import pytest

from dataplane.config.problems import ConfigErrors
from epp.graph import PluginGraph, load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from tests.support.plugins import TEST_REGISTRY

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"


def pairs(**others: str) -> str:
    """Filters by name, each with the name it refers to."""
    lines = (
        f"- {{name: {name}, type: pair-filter, parameters: {{other: '{o}'}}}}" for name, o in others.items()
    )
    return "\n".join(lines)


def load(text: str) -> PluginGraph:
    """The graph of these plugins."""
    return load_graph(HEAD + text, Handle(EndpointTable()), registry=TEST_REGISTRY)


def problems(text: str) -> list[str]:
    """What is wrong with these plugins."""
    with pytest.raises(ConfigErrors) as caught:
        load(text)
    return [str(error) for error in caught.value.errors]


def test_a_plugin_is_built_after_those_it_refers_to_wherever_they_stand():
    graph = load(pairs(a="c", b="", c="b"))
    assert graph.instances["a"].other is graph.instances["c"]  # type: ignore[attr-defined]
    assert graph.instances["c"].other is graph.instances["b"]  # type: ignore[attr-defined]


def test_the_configured_order_is_kept():
    graph = load(pairs(a="c", b="", c="b"))
    assert [name for name, _ in graph.profiles["default"].filters] == ["a", "b", "c"]
    assert list(graph.instances)[:3] == ["a", "b", "c"]


def test_an_unknown_reference_is_refused_with_its_path():
    assert problems(pairs(first="secnod", second="")) == [
        ("plugins[0].parameters.other: references undefined plugin 'secnod' (did you mean \"second\"?)")
    ]
    assert problems(pairs(a="queue-scorer")) == [
        (
            "plugins[0].parameters.other: references undefined plugin 'queue-scorer'; "
            "add `- type: queue-scorer` to plugins"
        )
    ]


def test_a_reference_to_a_plugin_that_failed_is_no_second_mistake():
    assert problems(pairs(a="b") + "\n- {name: b, type: fussy-filter, parameters: {size: -1}}") == [
        "plugins[1].parameters.size: must not be negative"
    ]


def test_a_circle_is_refused():
    found = problems(pairs(x="", a="b", b="a"))
    assert found in (
        ["plugins[1].parameters: plugins refer to one another: a -> b -> a"],
        ["plugins[1].parameters: plugins refer to one another: b -> a -> b"],
    )


def test_unreadable_parameters_are_told_once():
    assert problems("- {name: a, type: pair-filter, parameters: {other: 3}}") == [
        "plugins[0].parameters.other: expected str, got int"
    ]


def test_a_handler_that_failed_is_not_missed_as_well():
    handler = "- {type: disagg-profile-handler, parameters: {stageOrder: random}}\n"
    assert problems(handler + "schedulingProfiles: [{name: a}, {name: b}]") == [
        "plugins[0].parameters.stageOrder: must be one of decode-first, prefill-first"
    ]
