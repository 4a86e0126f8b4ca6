"""Which policies hold for the same traffic, and whose rules count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.policies.overlap import beaten, beside
from dataplane.config.guardrails import GuardrailPolicySpec
from ipp.guardrails.policies import Policies


def spec(*rules: str, **said: Any) -> GuardrailPolicySpec:
    listed = [{"name": name, "type": "keywords", "parameters": {"words": [name]}} for name in rules or ("a",)]
    return msgspec.convert({"rules": listed, **said}, GuardrailPolicySpec)


@pytest.mark.parametrize(
    ("mine", "theirs", "meets", "whole"),
    [
        ({}, {}, True, True),
        ({}, {"tenants": ["acme"]}, True, False),
        ({"tenants": ["acme"]}, {}, True, True),
        ({"tenants": ["acme"]}, {"tenants": ["other"]}, False, None),
        ({"tenants": ["team-*"]}, {"tenants": ["team-a"]}, True, False),
        ({"tenants": ["team-a"]}, {"tenants": ["team-*"]}, True, True),
        ({"tenants": ["team"]}, {"tenants": ["team-*"]}, False, None),
        ({"tenants": ["a*", "b"]}, {"tenants": ["*"]}, True, True),
        ({"models": ["llama-*"], "pools": ["x"]}, {"models": ["llama-3*"], "pools": ["x", "y"]}, True, False),
        ({"models": ["llama-*"], "pools": ["x"]}, {"models": ["*"], "pools": ["y"]}, False, None),
        ({}, {"enabled": False}, False, None),
    ],
)
def test_policies_meet_where_all_their_lists_do(
    mine: dict[str, Any], theirs: dict[str, Any], meets: bool, whole: bool | None
) -> None:
    found = beside("mine", spec(**mine), [("mine", spec(**mine)), ("theirs", spec(**theirs))])
    assert [(each.name, each.is_whole) for each in found] == ([("theirs", whole)] if meets else [])


def test_of_rules_with_one_name_the_one_of_the_policy_that_comes_first_counts() -> None:
    mine = spec("a", "b", priority=5)
    others = [
        ("later", spec("a", priority=4)),
        ("aaa", spec("b", "c", priority=5, tenants=["acme"])),
        ("first", spec("a", priority=9)),
    ]
    found = beside("mine", mine, others)
    assert [(each.name, each.comes_first, each.shared) for each in found] == [
        ("first", True, ["a"]),
        ("aaa", True, ["b"]),
        ("later", False, ["a"]),
    ]
    assert [(each.policy, each.is_always) for each in beaten("a", found)] == [("first", True)]
    assert [(each.policy, each.is_always) for each in beaten("b", found)] == [("aaa", False)]


NAMES = st.lists(st.sampled_from(["a", "ab", "b", "a*", "ab*", "*"]), min_size=1, max_size=2, unique=True)
LISTS = st.none() | NAMES


@given(LISTS, LISTS, LISTS, LISTS, st.integers(0, 1), st.integers(0, 1))
def test_what_is_told_is_what_processors_do(
    tenants: Any, models: Any, tenants_2: Any, models_2: Any, priority: int, priority_2: int
) -> None:
    mine = spec("r", tenants=tenants, models=models, priority=priority)
    theirs = spec("r", tenants=tenants_2, models=models_2, priority=priority_2)
    told = beside("m", mine, [("n", theirs)])
    both, counts = Policies([("m", mine), ("n", theirs)]), []
    for tenant in ("a", "ab", "abc", "b", "z"):
        for model in ("a", "ab", "abc", "b", "z"):
            alone = [Policies([each]).select(tenant, model, "p") for each in (("m", mine), ("n", theirs))]
            if None in alone:
                counts.append(None if alone[0] is None else "alone")
                continue
            found = both.select(tenant, model, "p")
            assert found is not None
            counts.append(found.check_request(b'{"prompt": "r"}').verdicts[0].policy)
    if "m" in counts or "n" in counts:
        assert told
    if told and told[0].comes_first:
        assert "m" not in counts
        if told[0].is_whole:
            assert "alone" not in counts
    elif told:
        assert "n" not in counts
