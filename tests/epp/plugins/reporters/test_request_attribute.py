"""request-attribute-reporter: a value computed from usage, or nothing."""

from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from dataplane.payload.token_usage import Usage
from epp.interfaces.request_control import ResponseReporter
from epp.plugins.reporters.request_attribute import (
    MAX_ATTRIBUTES,
    MAX_EXPRESSION,
    RequestAttributeReporter,
)
from tests.support.pool import make_plugin, make_request

USAGE = Usage(prompt_tokens=30, completion_tokens=10, total_tokens=40, cached_tokens=16)


def one(expression: str, **others: Any) -> dict[str, Any]:
    """Parameters with one attribute, `cost` in the default namespace."""
    return {"attributes": [{"key": {"name": "cost"}, "expression": expression, **others}]}


def reported(params: dict[str, Any], usage: Usage | None = USAGE) -> Any:
    plugin = make_plugin(RequestAttributeReporter, None, params)
    assert isinstance(plugin, ResponseReporter)
    return plugin.report_response(make_request(), usage)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("usage.completion_tokens", 10),
        ("usage.prompt_tokens + usage.completion_tokens", 40),
        ("usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens + 4 * usage.completion_tokens", 54),
        ("usage.input_tokens + usage.output_tokens + usage.input_tokens_details.cached_tokens", 56),
        ("usage.total_tokens > 100 ? 2 : 1", 1),
        ("int(double(usage.prompt_tokens) * 1.5)", 45),
        ("-usage.completion_tokens", -10),
    ],
)
def test_the_expression_is_computed_from_usage(expression: str, value: int):
    assert reported(one(expression)) == {"envoy.lb": {"cost": value}}


def test_it_goes_where_the_key_says():
    params = one("usage.completion_tokens")
    params["attributes"] += [
        {"key": {"name": "in", "namespace": "billing"}, "expression": "usage.prompt_tokens"},
        {"key": {"name": "out", "namespace": "billing"}, "expression": "usage.completion_tokens"},
    ]
    assert reported(params) == {"envoy.lb": {"cost": 10}, "billing": {"in": 30, "out": 10}}


def test_nothing_is_reported_when_there_is_nothing_to_report():
    assert reported(one("usage.completion_tokens"), None) is None
    assert not reported(one("usage.completion_tokens"), Usage(prompt_tokens=1))
    assert not reported(one("usage.completion_tokens"), Usage(completion_tokens=0))
    assert not reported(one("usage.prompt_tokens_details.cached_tokens"), Usage(prompt_tokens=1))


def test_a_condition_decides():
    params = one("usage.completion_tokens", condition="has(usage.prompt_tokens) && usage.prompt_tokens > 20")
    assert reported(params) == {"envoy.lb": {"cost": 10}}
    assert not reported(params, Usage(prompt_tokens=20, completion_tokens=10))
    assert not reported(params, Usage(completion_tokens=10))


def test_absent_fields_can_be_asked_for():
    expression = "(has(usage.prompt_tokens) ? usage.prompt_tokens : 0) + usage.completion_tokens"
    assert reported(one(expression), Usage(completion_tokens=10)) == {"envoy.lb": {"cost": 10}}


def test_a_value_that_is_no_integer_after_all_is_an_error():
    params = one("usage.completion_tokens > 100 ? 1 : 1.5")
    with pytest.raises(TypeError, match=r"the expression of cost gives 1\.5, which is no integer"):
        reported(params)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (one("usage."), "attributes[0].expression: is no CEL expression over usage: Failed to parse"),
        (one("cost"), "attributes[0].expression: is no CEL expression over usage: Undefined variable"),
        (
            one("usage.prompt_tokens * 1.5"),
            "attributes[0].expression: is no CEL expression over usage: No such",
        ),
        (
            one("usage.tokens"),
            "attributes[0].expression: there is no 'tokens' in usage; there may be",
        ),
        (one("'a'"), "attributes[0].expression: gives 'a' and not an integer"),
        (one("true"), "attributes[0].expression: gives True and not an integer"),
        (one("1", condition="1"), "attributes[0].condition: gives 1 and not true or false"),
        (one("1" * (MAX_EXPRESSION + 1)), f"attributes[0].expression: has {MAX_EXPRESSION + 1} characters"),
        (one("("), "attributes[0].expression: is no CEL expression over usage"),
    ],
)
def test_expressions_that_cannot_work_are_refused(params: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as caught:
        make_plugin(RequestAttributeReporter, None, params)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ([], "attributes: has 0 entries"),
        (one("1")["attributes"] * (MAX_ATTRIBUTES + 1), f"attributes: has {MAX_ATTRIBUTES + 1} entries"),
        (one("1")["attributes"] * 2, "attributes[1].key.name: cost is there twice"),
        ([{"key": {"name": ""}, "expression": "1"}], "attributes[0].key.name: must not be empty"),
        (
            [{"key": {"name": "x", "namespace": ""}, "expression": "1"}],
            "attributes[0].key.namespace: must not be empty",
        ),
        (
            [{"key": {"name": "x-gateway-destination-endpoint"}, "expression": "1"}],
            "attributes[0].key.name: x-gateway-destination-endpoint is set by the picker itself",
        ),
    ],
)
def test_wrong_lists_of_attributes_are_refused(attributes: list[Any], message: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(RequestAttributeReporter, None, {"attributes": attributes})
    assert str(caught.value.errors[0]).startswith(f"parameters.{message}")


def test_what_depends_on_the_values_is_no_reason_to_refuse():
    params = one("100 / (usage.completion_tokens - 211)")
    assert reported(params, Usage(completion_tokens=261)) == {"envoy.lb": {"cost": 2}}
