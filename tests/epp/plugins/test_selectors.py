"""Label selectors: what matches, how the operators relate, and what is refused where."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.config.decode import decode_struct
from dataplane.errors import ConfigError
from epp.plugins.selectors import LabelSelector, Requirement, parse_selector

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["", "x", "y", "z"])
LABELS = st.dictionaries(KEYS, VALUES)
LISTED = st.lists(VALUES, min_size=1)
REQUIREMENTS = st.one_of(
    st.builds(Requirement, key=KEYS, operator=st.sampled_from(["In", "NotIn"]), values=LISTED),
    st.builds(Requirement, key=KEYS, operator=st.sampled_from(["Exists", "DoesNotExist"])),
)
SELECTORS = st.builds(LabelSelector, match_labels=LABELS, match_expressions=st.lists(REQUIREMENTS))


def read(raw: Any) -> tuple[LabelSelector | None, list[str]]:
    """A selector from plain data, and what is wrong with it."""
    problems: list[ConfigError] = []
    selector = decode_struct(raw, LabelSelector, "p", problems)
    return selector, [str(problem) for problem in problems]


def matches(raw: dict[str, Any], labels: dict[str, str]) -> bool:
    selector, problems = read(raw)
    assert selector is not None
    assert problems == []
    return selector.test()(labels)


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ["x", "y"], [True, False, False]),
        ("NotIn", ["x", "y"], [False, True, True]),
        ("Exists", [], [True, True, False]),
        ("DoesNotExist", [], [False, False, True]),
    ],
)
def test_operators(operator: str, values: list[str], expected: list[bool]):
    raw = {"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}
    assert [matches(raw, labels) for labels in ({"a": "x"}, {"a": "z"}, {"b": "x"})] == expected


def test_all_requirements_must_be_met():
    raw = {"matchLabels": {"a": "x"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}
    assert matches(raw, {"a": "x", "b": ""})
    assert not matches(raw, {"a": "x"})
    assert not matches(raw, {"a": "y", "b": ""})


@given(LABELS)
def test_a_selector_without_requirements_matches_everything(labels: dict[str, str]):
    assert LabelSelector().is_empty
    assert LabelSelector().test()(labels)


@given(SELECTORS, LABELS)
def test_a_selector_is_the_conjunction_of_its_parts(selector: LabelSelector, labels: dict[str, str]):
    parts = [LabelSelector(match_labels={key: value}) for key, value in selector.match_labels.items()]
    parts += [LabelSelector(match_expressions=[one]) for one in selector.match_expressions]
    assert selector.test()(labels) == all(part.test()(labels) for part in parts)
    assert selector.is_empty == (not parts)


@given(KEYS, VALUES, LABELS)
def test_a_match_label_is_an_in_expression_with_one_value(key: str, value: str, labels: dict[str, str]):
    requirement = Requirement(key=key, operator="In", values=[value])
    assert LabelSelector(match_labels={key: value}).test()(labels) == requirement.test()(labels)


@given(KEYS, LISTED, LABELS)
def test_each_operator_has_its_opposite(key: str, values: list[str], labels: dict[str, str]):
    def met(operator: Any, values: list[str]) -> bool:
        return Requirement(key=key, operator=operator, values=values).test()(labels)

    assert met("In", values) != met("NotIn", values)
    assert met("Exists", []) != met("DoesNotExist", [])
    assert met("In", values) <= met("Exists", [])
    assert met("DoesNotExist", []) <= met("NotIn", values)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"key": "a", "operator": "In"}, "values: operator In needs at least one value"),
        ({"key": "a", "operator": "NotIn", "values": []}, "values: operator NotIn needs at least one value"),
        (
            {"key": "a", "operator": "Exists", "values": ["x"]},
            "values: operator Exists takes no values; remove them",
        ),
        (
            {"key": "a", "operator": "DoesNotExist", "values": ["x"]},
            "values: operator DoesNotExist takes no values; remove them",
        ),
        ({"key": "", "operator": "Exists"}, "key: must not be empty"),
        (
            {"key": "a", "operator": "in", "values": ["x"]},
            "operator: must be one of In, NotIn, Exists, DoesNotExist; got 'in'",
        ),
        ({"operator": "Exists"}, "key: is required"),
    ],
)
def test_a_mistake_in_an_expression_is_named_with_its_place(entry: dict[str, Any], problem: str):
    good = {"key": "a", "operator": "Exists"}
    assert read({"matchExpressions": [good, entry]})[1] == [f"p.matchExpressions[1].{problem}"]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"matchLabels": {"": "x"}}, "matchLabels: a label key must not be empty"),
        ({"matchLabels": {"a": 1}}, "matchLabels.a: expected str, got int"),
        ({"matchlabels": {}}, 'matchlabels: unknown field (did you mean "matchLabels"?)'),
    ],
)
def test_mistakes_elsewhere_are_named_with_their_place(raw: dict[str, Any], problem: str):
    assert read(raw)[1] == [f"p.{problem}"]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
expression = st.fixed_dictionaries(
    {}, optional={"key": plain, "operator": plain | st.sampled_from(["In", "Exists"]), "values": plain}
)


@given(
    st.fixed_dictionaries(
        {}, optional={"matchLabels": plain, "matchExpressions": st.lists(expression) | plain}
    )
)
def test_any_data_is_a_usable_selector_or_a_named_mistake(raw: dict[str, Any]):
    selector, problems = read(raw)
    if not problems:
        assert selector is not None
        assert selector.test()({"a": "x"}) in (True, False)
    assert all(problem.startswith("p.") for problem in problems)


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        ("a=1", {0, 2}),
        ("a==1,b", {2}),
        ("a!=1", {1, 3}),
        ("a in (1, 2)", {0, 1, 2}),
        ("a notin (1),!b", {1, 3}),
        ("!a", {3}),
        (" b , a=1 ", {2}),
        ("", {0, 1, 2, 3}),
    ],
)
def test_reads_a_selector_from_text(text: str, matching: set[int]):
    labels: list[dict[str, str]] = [{"a": "1"}, {"a": "2"}, {"a": "1", "b": "x"}, {}]
    test = parse_selector(text).test()
    assert {i for i, each in enumerate(labels) if test(each)} == matching


@pytest.mark.parametrize("text", ["a = = b", "a in x", "a in (x", "not a selector!!", "a b", ",", "a=b c=d"])
def test_text_that_is_no_selector_is_refused_with_the_ways_to_write_one(text: str):
    with pytest.raises(ConfigError, match=r"is no label selector; write key=value, .*, key or !key"):
        parse_selector(text)


def written(requirement: Requirement) -> str:
    """A requirement as text."""
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case operator:
            return f"{requirement.key} {operator.lower()} ({', '.join(requirement.values)})"


@given(st.lists(REQUIREMENTS, max_size=4), LABELS)
def test_text_means_what_its_requirements_mean(requirements: list[Requirement], labels: dict[str, str]):
    text = ",".join(map(written, requirements))
    expected = LabelSelector(match_expressions=requirements).test()(labels)
    assert parse_selector(text).test()(labels) == expected
