"""Scorers may be written by the names of llm-d's concept pages; a warning says how they are called."""

import pytest

from epp.graph import load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle


@pytest.mark.parametrize(
    ("alias", "plugin_type"),
    [("kv-cache-scorer", "kv-cache-utilization-scorer"), ("queue-depth-scorer", "queue-scorer")],
)
def test_a_concept_name_stands_for_the_scorer(alias: str, plugin_type: str):
    graph = load_graph(
        f"""
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{{type: {alias}}}]
schedulingProfiles:
- {{name: default, plugins: [{{pluginRef: {alias}, weight: 2}}]}}
""",
        Handle(EndpointTable()),
    )
    assert graph.instances[alias].name == (plugin_type, alias)
    assert list(graph.warnings) == [f"plugins[0]: plugin type '{alias}' is deprecated; use '{plugin_type}'"]
