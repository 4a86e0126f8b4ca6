"""Fields are set and removed, and every other byte stays."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ipp.guardrails.edits import changed
from ipp.guardrails.matches import REMOVED, Change


@pytest.mark.parametrize(
    ("body", "keys", "value", "new"),
    [
        ('{"a": 1, "b" : 2.50}', ("a",), 3, '{"a": 3, "b" : 2.50}'),
        ('{"a":1,"a":2}', ("a",), 0, '{"a":0,"a":0}'),
        ('{"b":1}', ("a", "c"), "x", '{"a":{"c":"x"},"b":1}'),
        ("{}", ("a",), None, '{"a":null}'),
        ('{"a":null}', ("a", "b"), 1, '{"a":{"b":1}}'),
        ('{"a":{"b":[1,{"c":2}]}}', ("a", "b", 1, "c"), 3, '{"a":{"b":[1,{"c":3}]}}'),
        ('{"a":1, "b":2}', ("a",), REMOVED, '{"b":2}'),
        ('{"b":2, "a":1}', ("a",), REMOVED, '{"b":2}'),
        ('{"a":1}', ("a",), REMOVED, "{}"),
        ('{"a":1,"b":2,"a":3,"a":4}', ("a",), REMOVED, '{"b":2}'),
        ('{"b":1}', ("a",), REMOVED, '{"b":1}'),
        ('{"t":["x","y"]}', ("t", 0), REMOVED, '{"t":["y"]}'),
        ('{"\\u0061":"}"}', ("a",), 1, '{"\\u0061":1}'),
        ('{"t":[]}', ("t", 3), 1, '{"t":[]}'),
    ],
)
def test_change(body, keys, value, new):
    assert changed(body.encode(), [Change(keys, value)]).decode() == new


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers()), max_size=6), st.sets(st.sampled_from("abc"))
)
def test_removed_members_leave_an_object(pairs, gone):
    body = "{" + " , ".join(f'"{key}": {value}' for key, value in pairs) + "}"
    new = changed(body.encode(), [Change((key,), REMOVED) for key in sorted(gone)])
    assert json.loads(new, object_pairs_hook=list) == [pair for pair in pairs if pair[0] not in gone]
