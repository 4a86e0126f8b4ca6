"""Structural differences: by the names of plugins and profiles, not by their places."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.diff import changes
from controlplane.core.documents import Change
from tests.support.controlplane import picker_config


def test_a_weight_is_one_change() -> None:
    assert changes(picker_config(2), picker_config(5)) == [
        Change("schedulingProfiles[default].plugins[queue-scorer].weight", 2, 5)
    ]


def test_an_entry_in_front_moves_nothing() -> None:
    before, after = picker_config(), picker_config()
    after["plugins"].insert(0, {"type": "random-picker", "name": "dice"})
    assert changes(before, after) == [
        Change("plugins[dice]", None, {"type": "random-picker", "name": "dice"}),
    ]


def test_another_order_is_told_as_such() -> None:
    before, after = picker_config(), picker_config()
    after["schedulingProfiles"][0]["plugins"].reverse()
    assert changes(before, after) == [
        Change(
            "schedulingProfiles[default].plugins (order)",
            ["queue-scorer", "prefix-cache-scorer"],
            ["prefix-cache-scorer", "queue-scorer"],
        )
    ]


def test_what_is_new_as_a_whole_is_shown_as_it_is_written() -> None:
    after = picker_config()
    assert changes({}, {"plugins": after["plugins"]}) == [Change("plugins", None, after["plugins"])]
    assert changes({"plugins": []}, {"plugins": after["plugins"]}) == [
        Change("plugins[queue-scorer]", None, {"type": "queue-scorer"}),
        Change("plugins[prefix-cache-scorer]", None, {"type": "prefix-cache-scorer"}),
    ]


def test_lists_without_names_are_compared_by_place() -> None:
    assert changes({"a": ["x", "y"]}, {"a": ["x", "z", 1]}) == [
        Change("a[1]", "y", "z"),
        Change("a[2]", None, 1),
    ]


def test_a_number_is_no_truth_value() -> None:
    assert changes({"a": True}, {"a": 1}) == [Change("a", True, 1)]


JSON = st.recursive(
    st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "pluginRef", "type", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_nothing_differs_from_itself(value: Any) -> None:
    assert changes(value, value) == []


@given(JSON, JSON)
def test_whatever_differs_is_told(before: Any, after: Any) -> None:
    assert bool(changes(before, after)) == (
        json.dumps(before, sort_keys=True) != json.dumps(after, sort_keys=True)
    )


@given(st.lists(st.sampled_from("abcd"), unique=True, max_size=4), st.integers())
def test_every_other_order_is_seen(names: list[str], seed: int) -> None:
    entries = [{"name": name} for name in names]
    shuffled = list(entries)
    random.Random(seed).shuffle(shuffled)
    assert bool(changes({"plugins": entries}, {"plugins": shuffled})) == (entries != shuffled)
