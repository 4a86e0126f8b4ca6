"""label-selector-filter: endpoints whose labels match stay."""

from epp.graph import load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.filters.label_selector import LabelSelectorFilter
from tests.support.labelled import labelled_table, left_by, names
from tests.support.pool import make_plugin, make_request

POOL = [{"tier": "gold", "gpu": "h100"}, {"tier": "gold"}, {"tier": "bronze", "gpu": "l4"}, {}]


def test_match_labels_and_expressions_are_joined():
    assert left_by(LabelSelectorFilter, POOL, {"matchLabels": {"tier": "gold"}}) == ["e0", "e1"]
    selector = {"matchLabels": {"tier": "gold"}, "matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
    assert left_by(LabelSelectorFilter, POOL, selector) == ["e0"]


def test_not_in_keeps_endpoints_without_the_label():
    selector = {"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["l4"]}]}
    assert left_by(LabelSelectorFilter, POOL, selector) == ["e0", "e1", "e3"]


def test_without_a_match_nobody_is_left():
    assert left_by(LabelSelectorFilter, POOL, {"matchLabels": {"tier": "silver"}}) == []
    assert left_by(LabelSelectorFilter, [], {"matchLabels": {"tier": "gold"}}) == []


def test_an_empty_selector_keeps_everybody_and_says_so():
    table = labelled_table(POOL)
    plugin = make_plugin(LabelSelectorFilter, table)
    assert names(plugin.filter(make_request(), table.all())) == ["e0", "e1", "e2", "e3"]
    assert plugin.warnings == ["the selector is empty and keeps every endpoint"]
    assert make_plugin(LabelSelectorFilter, table, {"matchLabels": {"a": "b"}}).warnings == []


def test_the_deprecated_type_is_accepted_with_a_warning():
    graph = load_graph(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
        "plugins: [{type: by-label-selector, parameters: {matchLabels: {tier: gold}}}]\n"
        "schedulingProfiles: [{name: default, plugins: [{pluginRef: by-label-selector}]}]",
        Handle(EndpointTable()),
    )
    [(name, plugin)] = graph.profiles["default"].filters
    assert (name, type(plugin)) == ("by-label-selector", LabelSelectorFilter)
    assert graph.warnings == (
        "plugins[0]: plugin type 'by-label-selector' is deprecated; use 'label-selector-filter'",
    )
