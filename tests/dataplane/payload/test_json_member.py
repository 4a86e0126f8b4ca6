"""One member of an object is set, and every other byte of it stays."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dataplane.payload.json_member import set_member
from tests.support.json_spellings import NEW, Pair, join, keys, spaces, spellings, values


@st.composite
def requests(draw: st.DrawFn) -> Pair:
    """An object, and what it is with ``model`` set to ``NEW``."""
    items: list[Pair] = []
    new = json.dumps(NEW).encode()
    is_set = False
    for _ in range(draw(st.integers(0, 6))):
        key = draw(keys)
        name = draw(spellings(key)) + draw(spaces) + b":" + draw(spaces)
        value, _ = draw(values())
        items.append((name + value, name + new if key == "model" else name + value))
        is_set = is_set or key == "model"
    before, after = draw(join_strategy(items))
    if not is_set:
        comma = b"," if items else b""
        after = b'{"model":' + new + comma + before[1:]
    margin = draw(spaces)
    return margin + before + margin, margin + after + margin


@st.composite
def join_strategy(draw: st.DrawFn, items: list[Pair]) -> Pair:
    return join(draw, b"{", items, b"}")


@given(requests())
@settings(max_examples=200)
def test_any_object_becomes_what_its_structure_says(request_: Pair):
    before, after = request_
    assert set_member(before, "model", NEW) == after
    assert json.loads(after)["model"] == NEW
    if isinstance(json.loads(before).get("model"), str):
        assert set_member(before, "model", NEW, is_string=True) == after


@given(st.binary(max_size=100) | st.text('{}[]":,\\ model1', max_size=60).map(str.encode))
def test_anything_else_is_refused_or_passed_and_never_hangs(data: bytes):
    try:
        json.loads(data)
    except ValueError:
        is_valid = False
    else:
        is_valid = True
    try:
        changed = set_member(data, "model", NEW)
    except ValueError as error:
        assert "not a JSON object (offset " in str(error)  # noqa: PT017 - it need not be raised
    else:
        assert not is_valid or json.loads(changed)["model"] == NEW


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"model":"a"}', '{"model":"t"}'),
        (
            '{ "messages" : [ {"model":"a"} ] , "model" : "a" }',
            '{ "messages" : [ {"model":"a"} ] , "model" : "t" }',
        ),
        (
            '{"seed":1.0,"model":null,"big":12345678901234567890}',
            '{"seed":1.0,"model":"t","big":12345678901234567890}',
        ),
        ('{"model":{"a":["}"]},"x":1}', '{"model":"t","x":1}'),
        ('{"model":"a","model":"b"}', '{"model":"t","model":"t"}'),
        ('{"model":"a","mod\\u0065l":"b"}', '{"model":"t","mod\\u0065l":"t"}'),
        ("{}", '{"model":"t"}'),
        (' { "a": 1 }', ' {"model":"t", "a": 1 }'),
        ('{"a":"\\"model\\":\\"x\\""}', '{"model":"t","a":"\\"model\\":\\"x\\""}'),
    ],
)
def test_value_is_set_in_place_and_put_first_where_there_is_none(body: str, expected: str):
    assert set_member(body.encode(), "model", "t").decode() == expected


@pytest.mark.parametrize(
    ("body", "offset"), [("", 0), (" [1]", 1), ('{"a"', 4), ('{"a":', 5), ('{"a":[{', 7), ('{"a":["x', 6)]
)
def test_what_is_no_object_is_refused_with_the_place(body: str, offset: int):
    with pytest.raises(ValueError, match=rf"not a JSON object \(offset {offset}\)"):
        set_member(body.encode(), "model", "t")


def test_a_text_that_repeats_the_member_without_end_is_refused():
    assert set_member(b"{%b}" % b",".join([b'"m":1'] * 100), "m", "x") == (
        b"{%b}" % b",".join([b'"m":"x"'] * 100)
    )
    with pytest.raises(ValueError, match=r"^more than 100 members are named 'm'$"):
        set_member(b"{%b}" % b",".join([b'"m":1'] * 101), "m", "x")


def test_large_body_is_edited_in_one_pass():
    messages = ",".join('{"role":"user","content":"%s"}' % ("text \\n" * 200) for _ in range(200))
    body = f'{{"messages":[{messages}],"model":"a","n":1}}'.encode()
    changed = set_member(body, "model", "target")
    assert set_member(body, "model", "target", is_string=True) == changed
    assert changed == body.replace(b'"model":"a"', b'"model":"target"')
