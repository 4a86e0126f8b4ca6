"""by-label: endpoints whose label has a listed value stay; the type is deprecated."""

from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from epp.plugins.filters.by_label import ByLabelFilter
from tests.support.labelled import left_by
from tests.support.pool import make_plugin

POOL = [{"tier": "gold"}, {"tier": "silver"}, {"tier": "bronze"}, {"other": "gold"}, {"tier": ""}]


def test_listed_values_are_kept():
    parameters = {"label": "tier", "validValues": ["gold", "bronze"]}
    assert left_by(ByLabelFilter, POOL, parameters) == ["e0", "e2"]


def test_endpoints_without_the_label_are_kept_when_allowed():
    parameters = {"label": "tier", "validValues": ["gold"], "allowsNoLabel": True}
    assert left_by(ByLabelFilter, POOL, parameters) == ["e0", "e3"]
    assert left_by(ByLabelFilter, POOL, {"label": "tier", "allowsNoLabel": True}) == ["e3"]


def test_an_empty_value_is_a_value():
    assert left_by(ByLabelFilter, POOL, {"label": "tier", "validValues": [""]}) == ["e4"]


def test_nobody_may_be_left():
    assert left_by(ByLabelFilter, POOL, {"label": "tier", "validValues": ["lead"]}) == []


def test_the_type_is_deprecated():
    plugin = make_plugin(ByLabelFilter, None, {"label": "tier", "validValues": ["gold"]})
    assert plugin.warnings == ["the type by-label is deprecated; use label-selector-filter"]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        (None, "parameters.label: is required"),
        ({"label": "", "validValues": ["x"]}, "parameters.label: must not be empty"),
        (
            {"label": "tier"},
            "parameters.validValues: nobody can pass: list at least one value, or set allowsNoLabel",
        ),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any] | None, problem: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(ByLabelFilter, None, parameters)
    assert [str(error) for error in caught.value.errors] == [problem]
