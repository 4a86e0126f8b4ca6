"""The saturation detector: the one that is named, else one that can know."""

from __future__ import annotations

import pytest

from epp.graph import load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
NAMED = "flowControl: {saturationDetector: {pluginRef: mine}}\n"


@pytest.mark.parametrize(
    ("text", "detector", "sources"),
    [
        ("plugins: [{type: queue-scorer}]\n", "utilization-detector", 1),
        ("plugins: [{type: active-request-scorer}]\n", "concurrency-detector", 0),
        (
            "plugins: [{type: active-request-scorer}]\ndataLayer: {injectDefaults: false}\n",
            "concurrency-detector",
            0,
        ),
        ("plugins: [{type: concurrency-detector, name: mine}]\n" + NAMED, "mine", 0),
        ("plugins: [{type: utilization-detector, name: mine}]\n" + NAMED, "mine", 1),
        ("plugins: [{type: utilization-detector}]\n", "utilization-detector", 1),
    ],
    ids=["measured", "not measured", "nothing injected", "counting", "named", "listed"],
)
def test_detector(text: str, detector: str, sources: int):
    graph = load_graph(HEAD + text, Handle(EndpointTable()))
    assert graph.saturation_detector.name.name == detector
    assert len(graph.sources) == sources
    assert graph.warnings == ()


def test_a_detector_that_is_created_filters_nobody():
    graph = load_graph("", Handle(EndpointTable()))
    assert graph.saturation_detector is graph.instances["utilization-detector"]
    assert graph.profiles["default"].filters == ()
