"""endpoint-attribute-filter: who compares as wanted stays."""

from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.plugin.base import DataKey, Stability
from epp.interfaces.endpoint import EndpointTable
from epp.plugins.filters.endpoint_attribute import EndpointAttributeFilter
from tests.support.labelled import names
from tests.support.pool import make_plugin, make_request, make_table

HEAT = DataKey[float]("Heat", "thermometer")


def parameters(operator: str = "LessThan", value: float = 0.5, **others: Any) -> dict[str, Any]:
    threshold = {"operator": operator, "value": value}
    return {"attribute": "Heat", "algorithm": {"type": "threshold", "threshold": threshold}, **others}


def table_of(*heats: float | None) -> EndpointTable:
    table = make_table(len(heats))
    for endpoint, heat in zip(table.all().endpoints, heats, strict=True):
        table.annotate(endpoint, HEAT, heat)
    return table


def left(table: EndpointTable, params: dict[str, Any]) -> list[str]:
    plugin = make_plugin(EndpointAttributeFilter, table, params)
    return names(plugin.filter(make_request(), table.all()))


@pytest.mark.parametrize(
    ("operator", "kept"),
    [
        ("LessThan", ["e0"]),
        ("LessThanOrEqual", ["e0", "e1"]),
        ("GreaterThan", ["e2"]),
        ("GreaterThanOrEqual", ["e1", "e2"]),
        ("Equal", ["e1"]),
        ("NotEqual", ["e0", "e2"]),
    ],
)
def test_each_operator_has_the_attribute_on_its_left(operator: str, kept: list[str]):
    assert left(table_of(0.25, 0.5, 0.75), parameters(operator)) == kept


def test_endpoints_without_the_attribute_pass_unless_they_shall_fail():
    table = table_of(None, 0.25, 0.75)
    assert left(table, parameters()) == ["e0", "e1"]
    assert left(table, parameters(onMissing="Fail")) == ["e1"]
    assert left(table, parameters("NotEqual", 0.25)) == ["e0", "e2"]
    assert left(table, parameters("NotEqual", 0.25, onMissing="Fail")) == ["e2"]


def test_an_attribute_nobody_has_written_yet_is_missing():
    table = make_table(2)
    assert left(table, parameters()) == ["e0", "e1"]
    assert left(table, parameters(onMissing="Fail")) == []


def test_nobody_left_is_nobody_or_everybody():
    table = table_of(0.75, 1.0)
    assert left(table, parameters()) == []
    assert left(table, parameters(fallbackOnEmpty=True)) == ["e0", "e1"]


def test_the_producer_can_be_named():
    table = table_of(0.25)
    table.annotate(table.all().endpoint(0), HEAT.by("other"), 0.75)
    assert left(table, parameters(producer="thermometer")) == ["e0"]
    assert left(table, parameters(producer="other")) == []
    plugin = make_plugin(EndpointAttributeFilter, table, parameters(producer="other"))
    assert list(plugin.consumes) == [HEAT.by("other")]
    assert list(make_plugin(EndpointAttributeFilter, table, parameters()).consumes) == [HEAT.by("")]
    assert plugin.info.stability is Stability.ALPHA


def test_a_slash_belongs_to_the_name_only_if_a_producer_is_said():
    params = {**parameters(producer=""), "attribute": "a/b"}
    assert list(make_plugin(EndpointAttributeFilter, None, params).consumes) == [DataKey("a/b")]
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(EndpointAttributeFilter, None, {**parameters(), "attribute": "Heat/thermometer"})
    assert [str(error) for error in caught.value.errors] == [
        (
            "parameters.attribute: 'Heat/thermometer' has a slash and no producer; write attribute: Heat and "
            'producer: thermometer, or producer: "" if the slash belongs to the name'
        )
    ]


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({**parameters(), "attribute": ""}, "parameters.attribute"),
        (parameters(value=float("inf")), "parameters.algorithm.threshold.value"),
        (parameters("Below"), "parameters.algorithm.threshold.operator"),
        ({"attribute": "Heat"}, "parameters.algorithm"),
        (parameters(onMissing="Maybe"), "parameters.onMissing"),
        ({**parameters(), "algorithm": {"type": "other", "threshold": {}}}, "parameters.algorithm.type"),
    ],
)
def test_what_cannot_be_meant_is_refused(params: dict[str, Any], path: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(EndpointAttributeFilter, None, params)
    assert path in [error.path for error in caught.value.errors]
