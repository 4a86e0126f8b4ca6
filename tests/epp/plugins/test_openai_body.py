"""Bodies are decoded once into their struct; only odd ones take the lenient way, to the same result."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import BadRequestError
from epp.plugins import json_body
from epp.plugins.json_body import NOTHING, decode
from epp.plugins.openai_body import ChatBody, CompletionBody, Item, Part, chat_text

CHAT = msgspec.json.Decoder(ChatBody)


def test_a_regular_body_is_decoded_by_its_struct_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_body, "_fit", None)
    body = decode(b'{"model": "m", "messages": [{"role": "user", "content": [{"text": "x"}]}]}', CHAT)
    assert body == ChatBody(model="m", messages=[Item(role="user", content=[Part(text="x")])])
    assert body.tools is NOTHING
    assert body.messages is not None
    assert body.messages[0].tool_calls is NOTHING


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"])},
        optional={
            "content": st.text(max_size=8)
            | st.lists(
                st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=8)}), max_size=3
            ),
            "name": st.text(max_size=3),
        },
    ),
    max_size=4,
)


@given(MESSAGES)
def test_the_lenient_way_reads_regular_messages_as_the_strict_one_does(messages: list[dict[str, Any]]):
    strict = decode(json.dumps({"model": "m", "messages": messages}).encode(), CHAT)
    lenient = decode(json.dumps({"model": "m", "messages": messages, "stream": "odd"}).encode(), CHAT)
    assert strict.messages is not None
    assert lenient.messages is not None
    assert chat_text(NOTHING, strict.messages) == chat_text(NOTHING, lenient.messages)


def test_lists_of_mixed_items_keep_what_fits():
    decoder = msgspec.json.Decoder(CompletionBody)
    body = decode(b'{"prompt": ["a", 1, [2, "x"], {"b": 1}, true, null]}', decoder)
    assert body.prompt == ["a", 1, [2]]


def test_nesting_at_every_depth_is_read_or_refused():
    for depth in range(100, 2000, 50):
        body = f'{{"stream": "odd", "tools": {"[" * depth}{"]" * depth}}}'.encode()
        with contextlib.suppress(BadRequestError):
            decode(body, CHAT)
