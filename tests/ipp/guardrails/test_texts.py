"""Every text of a body is seen, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipp.guardrails.shapes import ANSWER, REQUEST, Kind
from ipp.guardrails.texts import (
    MAX_DEPTH,
    MAX_TEXTS,
    NoJsonError,
    UnreadableError,
    decoded,
    edited,
    find_texts,
    is_said,
    path_of,
    token,
    without_details,
)
from tests.support.json_spellings import objects


def seen(value, shape=REQUEST):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return [(path_of(text.keys), text.read(body)) for text in find_texts(body, shape).texts]


REQUESTS = {
    "chat": (
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "developer", "content": [{"type": "text", "text": "d"}]},
                {
                    "role": "user",
                    "name": "ann",
                    "content": [{"type": "image_url", "image_url": {"url": "https://x"}}],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "refusal": "no",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "t"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "description": "what", "parameters": {"x": "y"}},
                }
            ],
            "stop": ["end"],
            "temperature": 1,
            "user": "u-1",
        },
        [
            ("messages[0].content", "s"),
            ("messages[1].content[0].text", "d"),
            ("messages[3].refusal", "no"),
            ("messages[3].tool_calls[0].function.arguments", "{}"),
            ("messages[4].content", "t"),
            ("tools[0].function.description", "what"),
            ("tools[0].function.parameters.x", "y"),
            ("stop[0]", "end"),
        ],
    ),
    "prompt": ({"prompt": "p", "suffix": "s"}, [("prompt", "p"), ("suffix", "s")]),
    "prompts": ({"prompt": ["p", "q"]}, [("prompt[0]", "p"), ("prompt[1]", "q")]),
    "tokens": ({"prompt": [[1, 2], [3]], "x": [1, "a", 2, "b"]}, [("x[1]", "a"), ("x[3]", "b")]),
    "responses": (
        {
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "i"}]},
                {"type": "function_call_output", "call_id": "c", "output": "o"},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
                {
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": "r"}],
                    "encrypted_content": "zz",
                },
            ],
            "instructions": "n",
            "reasoning": {"effort": "low"},
        },
        [
            ("input[0].content[0].text", "i"),
            ("input[1].output", "o"),
            ("input[2].arguments", '{"a": 1}'),
            ("input[3].summary[0].text", "r"),
            ("instructions", "n"),
        ],
    ),
    "anthropic": (
        {
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "t", "signature": "abc=="},
                        {
                            "type": "tool_use",
                            "id": "t1",
                            "name": "f",
                            "input": {"who": "me", "n": 4, "ok": True},
                        },
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "content": [{"type": "text", "text": "r"}],
                        },
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                        },
                        {
                            "type": "document",
                            "source": {"media_type": "text/plain", "data": "plain", "type": "text"},
                        },
                        {"type": "document", "source": {"type": "base64", "data": "two words"}},
                    ],
                },
            ],
        },
        [
            ("system[0].text", "s"),
            ("messages[0].content[0].thinking", "t"),
            ("messages[0].content[1].input.*", "who"),
            ("messages[0].content[1].input.who", "me"),
            ("messages[0].content[1].input.*", "n"),
            ("messages[0].content[1].input.n", "4"),
            ("messages[0].content[1].input.*", "ok"),
            ("messages[0].content[1].input.ok", "true"),
            ("messages[1].content[0].content[0].text", "r"),
            ("messages[1].content[2].source.data", "plain"),
            ("messages[1].content[3].source.data", "two words"),
        ],
    ),
    "embeddings": ({"model": "m", "input": ["a", "b"]}, [("input[0]", "a"), ("input[1]", "b")]),
    "gemini": (
        {
            "systemInstruction": {"parts": [{"text": "s"}]},
            "contents": [
                {
                    "role": "user",
                    "parts": [
                        {"text": "p"},
                        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                    ],
                }
            ],
        },
        [("systemInstruction.parts[0].text", "s"), ("contents[0].parts[0].text", "p")],
    ),
    "unknown": ({"a": {"b": ["c"]}, "documents": ["d"]}, [("a.b[0]", "c"), ("documents[0]", "d")]),
    "names that are none": (
        {"messages": [{"role": "user\nsecret", "content": "", "tool_call_id": "4111 1111"}]},
        [
            ("messages[0].role", "user\nsecret"),
            ("messages[0].content", ""),
            ("messages[0].tool_call_id", "4111 1111"),
        ],
    ),
}


@pytest.mark.parametrize(("body", "texts"), REQUESTS.values(), ids=REQUESTS)
def test_sees_the_texts_of_requests(body, texts):
    assert seen(body) == texts


def test_sees_the_texts_of_answers():
    chat = {
        "id": "c",
        "choices": [
            {
                "message": {"role": "assistant", "content": "a", "reasoning_content": "r"},
                "logprobs": {"content": [{"token": "a"}]},
            }
        ],
        "usage": {"x": "y"},
    }
    assert seen(chat, ANSWER) == [
        ("choices[0].message.content", "a"),
        ("choices[0].message.reasoning_content", "r"),
    ]
    assert seen({"data": [{"embedding": "AAAA"}], "output": [{"type": "x", "arguments": "{}"}]}, ANSWER) == [
        ("output[0].arguments", "{}")
    ]


def test_sees_both_of_two_members_with_one_name():
    body = b'{"prompt":"a","prompt":"b","pr\\u006fmpt":"c"}'
    assert seen(body) == [("prompt", "a"), ("prompt", "b"), ("prompt", "c")]
    assert find_texts(body, REQUEST).repeats
    assert not find_texts(b'{"a":{"x":1},"b":{"x":1}}', REQUEST).repeats


def test_a_key_that_is_no_name_stays_out_of_paths():
    assert seen({"me@example.com": "x", "ok": "y"}) == [("*", "me@example.com"), ("*", "x"), ("ok", "y")]


def test_keys_of_arguments_that_are_an_object_are_text():
    call = {"function": {"name": "f", "arguments": {"who": 4, "b": ["c"]}}}
    at = "messages[0].tool_calls[0].function.arguments"
    assert seen({"messages": [{"tool_calls": [call]}]}) == [
        (f"{at}.*", "who"),
        (f"{at}.who", "4"),
        (f"{at}.*", "b"),
        (f"{at}.b[0]", "c"),
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"inlineData": {"mimeType": "text/plain", "data": "cXggNyDDpA=="}},
        {"inlineData": {"data": "cXgg\nNyDDpA", "mimeType": "application/json"}},
        {"inline_data": {"mime_type": "image/png", "data": "cXggNyDDpA=="}},
        {"file": {"file_data": "data:text/plain;base64,cXggNyDDpA=="}},
        {"file": {"file_data": "cXggNyDDpA=="}},
        {"image_url": {"url": "data:text/plain;charset=utf-8,qx%207%20%C3%A4"}},
        {"image_url": {"url": "DATA: text/plain; BASE64,cXggNyDk"}},
        {"source": {"type": "base64", "media_type": "text/plain", "data": "//5xAHgAIAA3ACAA5AA="}},
    ],
    ids=lambda part: str(part)[:60],
)
def test_files_that_decode_to_text_are_text_and_change_the_way_they_are_given(part):
    body = json.dumps({"messages": [{"content": [{"type": "text", "text": "a"}, part]}]}).encode()
    _, text = find_texts(body, REQUEST).texts
    assert (text.kind, text.read(body)) == (Kind.FILE, "qx 7 ä")
    new = edited(body, [(text.start, text.end, text.saying(body, "*** ä"))])
    _, again = find_texts(new, REQUEST).texts
    assert (again.kind, again.read(new)) == (Kind.FILE, "*** ä")


@pytest.mark.parametrize(
    "given",
    [
        "data:image/png;base64,iVBORw0KGgo=",
        "data:image\\/png;base64,iVBORw0KGgo=",
        "data:application/pdf;base64,JVBERi0xLjQKJeLjz9MKAAA=",
        "https://example.com/?qx",
        "https:\\/\\/example.com",
        "AAAA",
        "_9j_4AAQSkZJRg",
    ],
)
def test_pictures_and_what_only_is_named_are_no_text(given):
    body = b'{"messages":[{"content":[{"image_url":{"url":"%b"}}]}]}' % given.encode()
    assert find_texts(body, REQUEST).texts == []


@given(objects())
def test_changes_one_token_and_no_other_byte(pair):
    body, _ = pair
    texts = find_texts(body, REQUEST).texts
    for text in texts:
        new = edited(body, [(text.start, text.end, token("new"))])
        assert new[: text.start] == body[: text.start]
        assert new[text.start :] == b'"new"' + body[text.end :]
        assert text.read(body) == json.loads(body[text.start : text.end])
        json.loads(new)


def test_takes_away_what_says_a_changed_text_again():
    body = (
        b'{"choices":[{"message":{"content":"a"},"logprobs":{"content":[1]}},{"text":"b","token_ids":[1,2]}]}'
    )
    found = find_texts(body, ANSWER)
    assert edited(body, without_details(found, body, [found.texts[0].keys])) == (
        b'{"choices":[{"message":{"content":"a"},"logprobs":null},{"text":"b","token_ids":[1,2]}]}'
    )
    assert edited(body, without_details(found, body, [found.texts[1].keys])) == (
        b'{"choices":[{"message":{"content":"a"},"logprobs":{"content":[1]}},{"text":"b","token_ids":[]}]}'
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "is no JSON: Input data was truncated"),
        (b'{"a":"\xff"}', "is no JSON: Invalid UTF-8"),
        (b"[" * 100_000, "is nested deeper than 64 levels"),
        ('{"a":1}'.encode("utf-16"), "is no JSON"),
    ],
)
def test_refuses_what_is_no_json(body, message):
    with pytest.raises(UnreadableError, match="^" + message):
        decoded(body)


def test_reads_half_characters_of_answers_only():
    assert decoded(b'"\\ud83d"', is_strict=False) == "\ud83d"
    with pytest.raises(NoJsonError):
        decoded(b'"\\ud83d"')


def test_refuses_a_level_too_much():
    def nested(levels):
        return b'{"a":' + b"[" * (levels - 1) + b'"x"' + b"]" * (levels - 1) + b"}"

    assert seen(nested(MAX_DEPTH)) == [("a" + "[0]" * (MAX_DEPTH - 1), "x")]
    with pytest.raises(UnreadableError, match=r"^is nested deeper than 64 levels$"):
        seen(nested(MAX_DEPTH + 1))


def test_refuses_a_text_too_much():
    assert len(seen(b"[" + b'"",' * (MAX_TEXTS - 1) + b'""]')) == MAX_TEXTS
    with pytest.raises(UnreadableError, match=r"^has more than 100000 texts$"):
        seen(b"[" + b'"",' * MAX_TEXTS + b'""]')


def test_tells_what_is_said_from_what_is_beside_it():
    said = {
        "chat": ["messages[0].content", "messages[1].content[0].text", "messages[4].content"],
        "responses": ["input[0].content[0].text", "instructions"],
        "prompts": ["prompt[0]", "prompt[1]"],
        "embeddings": ["input[0]", "input[1]"],
        "gemini": ["systemInstruction.parts[0].text", "contents[0].parts[0].text"],
        "unknown": [],
    }
    for name, paths in said.items():
        texts = find_texts(json.dumps(REQUESTS[name][0]).encode(), REQUEST).texts
        assert [path_of(text.keys) for text in texts if is_said(text)] == paths


FORMS = (
    '{"role":"user","content":%s}',
    '{ "role" : "user" ,\n "content" : %s }',
    '{"type":"text","text":%s}',
    '{"content":%s,"role":"user"}',
    '{"role":"user","content":%s,"name":"ada"}',
    '{"role":"","content":%s}',
    '{"role":"user","content":[{"type":"text","text":%s}]}',
    "%s",
)


@given(
    st.lists(st.tuples(st.sampled_from(FORMS), st.text(max_size=8)), max_size=6),
    st.sampled_from([",", " ,\n"]),
)
def test_every_message_is_seen_in_its_place_however_it_is_written(items: list[tuple[str, str]], comma: str):
    written = comma.join(form % json.dumps(said) for form, said in items)
    body = f'{{"messages":[{written}]}}'.encode()
    found = find_texts(body, REQUEST)
    assert [text.read(body) for text in found.texts] == [said for _, said in items]
    places = [next(key for key in text.keys if isinstance(key, int)) for text in found.texts]
    assert places == list(range(len(items)))


def test_a_message_with_two_contents_is_seen_twice():
    body = b'{"messages":[{"role":"user","content":"a","content":"b"},{"role":"user","content":"c"}]}'
    found = find_texts(body, REQUEST)
    assert [(path_of(text.keys), text.read(body)) for text in found.texts] == [
        ("messages[0].content", "a"),
        ("messages[0].content", "b"),
        ("messages[1].content", "c"),
    ]
    assert found.repeats
