"""Structural differences: by the names of plugins and profiles, not by their places."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.configs.diff import changes
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "pluginRef", "type", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_nothing_differs_from_itself(value: Any) -> None:
    assert changes(value, value) == []


@given(st.lists(st.sampled_from("abcd"), unique=True, max_size=4), st.integers())
def test_every_other_order_is_seen(names: list[str], seed: int) -> None:
    entries = [{"name": name} for name in names]
    shuffled = list(entries)
    random.Random(seed).shuffle(shuffled)
    assert bool(changes({"plugins": entries}, {"plugins": shuffled})) == (entries != shuffled)
