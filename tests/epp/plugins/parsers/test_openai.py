"""openai-parser: what is understood of each API's bodies, and the little that is refused."""

import contextlib
import json
from array import array
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import BadRequestError
from dataplane.headers import Headers
from dataplane.payload.openai_usage import UsageReader
from epp.interfaces.request import MediaKind, ModelUse, ParsedBody
from epp.plugins.parsers import openai
from epp.plugins.parsers.openai import OpenAIParser
from tests.support.pool import make_plugin

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
RESPONSES = "/v1/responses"
HEADERS = Headers([])


def parse(path: str, body: Any) -> ParsedBody:
    """The parsed body of a request, given as data or as bytes."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return make_plugin(OpenAIParser).parse(HEADERS, path, raw)


def refusal(path: str, body: Any) -> str:
    """The message the request is refused with."""
    with pytest.raises(BadRequestError) as caught:
        parse(path, body)
    return caught.value.message


def chat_text(*messages: Any, **fields: Any) -> bytes:
    """Prompt text of a conversation."""
    return parse(CHAT, {"model": "m", "messages": list(messages), **fields}).prompt_text


def test_reads_a_chat_request():
    body = {
        "model": "llama",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Grüße"}],
        "stream": True,
        "max_tokens": 5,
        "cache_salt": "tenant-1",
        "temperature": 0.5,
    }
    assert parse(CHAT, body) == ParsedBody(
        model="llama",
        stream=True,
        prompt_text="system\nBe kind.\nuser\nGrüße\n".encode(),
        max_output_tokens=5,
        cache_salt="tenant-1",
        model_use=ModelUse.REQUIRED,
    )


def test_the_newer_output_limit_wins():
    message = {"role": "user", "content": "x"}
    body = {"model": "m", "messages": [message], "max_tokens": 5, "max_completion_tokens": 7}
    assert parse(CHAT, body).max_output_tokens == 7
    assert parse(CHAT, {**body, "max_completion_tokens": None}).max_output_tokens == 5
    assert parse(CHAT, {**body, "max_completion_tokens": -1}).max_output_tokens is None


def test_tools_come_before_the_messages():
    tools = [{"type": "function", "function": {"name": "f"}}]
    text = chat_text({"role": "user", "content": "x"}, tools=tools)
    assert text == json.dumps(tools).encode() + b"user\nx\n"


def test_text_parts_are_joined_in_order():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert chat_text({"role": "user", "content": parts}) == b"user\none\ntwo\n"


def test_tool_calls_and_tool_results_belong_to_the_prompt():
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    text = chat_text(
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    )
    assert text == b"assistant\n" + json.dumps(calls).encode() + b"\ntool\n42\n"


@pytest.mark.parametrize(
    ("part", "same", "other", "kind"),
    [
        (
            {"type": "image_url", "image_url": {"url": "http://x/a.png"}},
            {"type": "image_url", "image_url": {"url": "http://x/a.png", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "http://x/b.png"}},
            MediaKind.IMAGE,
        ),
        (
            {"type": "input_image", "image_url": "http://x/a.png"},
            {"type": "image_url", "image_url": {"url": "http://x/a.png"}},
            {"type": "input_image", "image_url": "http://x/b.png"},
            MediaKind.IMAGE,
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
            {"type": "input_audio", "input_audio": {"data": "AAAB", "format": "wav"}},
            MediaKind.AUDIO,
        ),
        (
            {"type": "audio_url", "audio_url": {"url": "http://x/a.wav"}},
            {"type": "audio_url", "audio_url": {"url": "http://x/a.wav"}},
            {"type": "audio_url", "audio_url": {"url": "http://x/b.wav"}},
            MediaKind.AUDIO,
        ),
        (
            {"type": "video_url", "video_url": {"url": "http://x/a.mp4"}},
            {"type": "video_url", "video_url": {"url": "http://x/a.mp4"}},
            {"type": "video_url", "video_url": {"url": "http://x/b.mp4"}},
            MediaKind.VIDEO,
        ),
        (
            {"type": "input_file", "file_id": "f1"},
            {"type": "input_file", "file_id": "f1"},
            {"type": "input_file", "file_id": "f2"},
            MediaKind.FILE,
        ),
        (
            {"type": "file", "file": {"file_id": "f1"}},
            {"type": "file", "file": {"file_id": "f1"}},
            {"type": "file", "file": {"file_id": "f2"}},
            MediaKind.FILE,
        ),
    ],
    ids=["image", "image by text", "audio", "audio link", "video", "file id", "file"],
)
def test_media_are_told_apart_by_what_they_are(
    part: dict[str, Any], same: dict[str, Any], other: dict[str, Any], kind: MediaKind
):
    first, second, third = (chat_text({"role": "u", "content": [p]}) for p in (part, same, other))
    assert first == second != third
    body = parse(CHAT, {"model": "m", "messages": [{"role": "u", "content": [part]}]})
    assert body.media is not None
    (medium,) = body.media
    assert (medium.kind, medium.offset) == (kind, len("u\n"))
    assert first == b"u\n" + medium.digest.encode()


def test_media_are_placed_where_their_digests_stand():
    image, video = ({"type": f"{k}_url", f"{k}_url": {"url": k}} for k in ("image", "video"))
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Grüße"}, image, video]},
        {"role": "tool", "content": None, "output": [image]},
        {"role": "user", "content": "what is it?"},
    ]
    tools = [{"type": "function", "function": {"name": "f"}}]
    chat = parse(CHAT, {"model": "m", "messages": messages, "tools": tools})
    responses = parse(RESPONSES, {"model": "m", "input": messages, "instructions": "Über!"})
    conversation = parse("/v1/conversations", {"items": messages, "tools": tools, "instructions": "Über!"})
    for body in (chat, responses, conversation):
        assert body.media is not None
        assert [str(medium.kind) for medium in body.media] == ["image", "video", "image"]
        for medium in body.media:
            assert body.prompt_text[medium.offset :].startswith(medium.digest.encode())


def test_a_prompt_without_media_has_none():
    assert parse(CHAT, {"model": "m", "messages": [{"role": "u", "content": "x"}]}).media is None
    parts = [{"type": "text", "text": "x"}]
    assert parse(CHAT, {"model": "m", "messages": [{"role": "u", "content": parts}]}).media is None
    assert parse(RESPONSES, {"model": "m", "input": "x"}).media is None


@pytest.mark.parametrize("messages", [None, [], "text", {"role": "user"}], ids=str)
def test_chat_without_messages_is_refused(messages: Any):
    expected = "messages must be a list of at least one message"
    assert refusal(CHAT, {"model": "m", "messages": messages}) == expected
    assert refusal(CHAT, {"model": "m"}) == expected


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "x"}]}),
        (COMPLETIONS, {"prompt": "hello world"}),
        (EMBEDDINGS, {"input": "x"}),
        (RESPONSES, {"input": "x"}),
        ("/v1/images/generations", {"prompt": "x"}),
        (CHAT, {"model": "", "messages": [{"role": "user", "content": "x"}]}),
        (CHAT, {"model": 7, "messages": [{"role": "user", "content": "x"}]}),
        (CHAT, {"model": None, "messages": [{"role": "user", "content": "x"}]}),
    ],
)
def test_a_body_without_model_is_said_to_need_one(path: str, body: dict[str, Any]):
    parsed = parse(path, body)
    assert (parsed.model, parsed.model_use) == ("", ModelUse.REQUIRED)


def test_reads_completions_of_every_form():
    assert parse(COMPLETIONS, {"model": "m", "prompt": "abc", "max_tokens": 3}) == ParsedBody(
        model="m", prompt_text=b"abc", max_output_tokens=3, model_use=ModelUse.REQUIRED
    )
    assert parse(COMPLETIONS, {"model": "m", "prompt": ["abc"]}).prompt_text == b"abc"
    assert parse(COMPLETIONS, {"model": "m", "prompt": ["abc", "d"]}).batch == [b"abc", b"d"]
    assert parse(COMPLETIONS, {"model": "m", "prompt": [1, 2, 3]}).prompt_tokens == [1, 2, 3]
    token_lists = parse(COMPLETIONS, {"model": "m", "prompt": [[1, 2], [3]]})
    assert token_lists.batch == [array("I", [1, 2]).tobytes(), array("I", [3]).tobytes()]
    nothing = ParsedBody(model="m", model_use=ModelUse.REQUIRED)
    assert parse(COMPLETIONS, {"model": "m", "prompt": ""}) == nothing
    assert parse(COMPLETIONS, {"model": "m", "prompt": []}) == nothing


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (None, "prompt is required: a text, texts or token ids"),
        (5, "prompt is required: a text, texts or token ids"),
        ([[1, -2]], "prompt has a token id outside 0 to 4294967295"),
        ([[1], 2], "prompt mixes texts and token ids"),
        (["a", 1], "prompt mixes texts and token ids"),
        ([1, -1], "prompt has a token id outside 0 to 4294967295"),
        ([1 << 32], "prompt has a token id outside 0 to 4294967295"),
    ],
)
def test_impossible_prompts_are_refused(prompt: Any, message: str):
    assert refusal(COMPLETIONS, {"model": "m", "prompt": prompt}) == message


def test_reads_embeddings_of_every_form():
    assert parse(EMBEDDINGS, {"model": "m", "input": "abc"}).prompt_text == b"abc"
    assert parse(EMBEDDINGS, {"model": "m", "input": ["a", "b"]}).batch == [b"a", b"b"]
    assert parse(EMBEDDINGS, {"model": "m", "input": [7, 8]}).prompt_tokens == [7, 8]
    token_lists = parse(EMBEDDINGS, {"model": "m", "input": [[1, 2], [3]]})
    assert token_lists.batch == [array("I", [1, 2]).tobytes(), array("I", [3]).tobytes()]
    assert refusal(EMBEDDINGS, {"model": "m"}) == "input is required: a text, texts or token ids"
    assert refusal(EMBEDDINGS, {"model": "m", "input": [[-1]]}) == (
        "input has a token id outside 0 to 4294967295"
    )


def test_reads_responses():
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "42"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ]
    parsed = parse(
        RESPONSES,
        {"model": "m", "instructions": "Be kind.", "input": items, "max_output_tokens": 9, "stream": True},
    )
    assert parsed == ParsedBody(
        model="m",
        stream=True,
        prompt_text=b"Be kind.user\nHi\n\nf{}\n\n42\nassistant\nno\n",
        max_output_tokens=9,
        model_use=ModelUse.REQUIRED,
    )
    assert parse(RESPONSES, {"model": "m", "input": "Hi"}).prompt_text == b"Hi"
    assert refusal(RESPONSES, {"model": "m"}) == "input is required: a text or a list of items"


def test_conversations_need_items_and_no_model():
    assert parse("/v1/conversations", {"items": [{"role": "user", "content": "x"}]}) == ParsedBody(
        prompt_text=b"user\nx\n"
    )
    assert refusal("/v1/conversations", {"model": "m"}) == "items is required: a list of items"


def test_images_need_a_prompt():
    assert parse("/v1/images/generations", {"model": "m", "prompt": "x"}).prompt_text == b"x"
    assert refusal("/v1/images/generations", {"model": "m"}) == "prompt is required: a text"


@pytest.mark.parametrize(
    ("path", "is_chat"),
    [
        ("/v1/chat/completions", True),
        ("/openai/v1/chat/completions/", True),
        ("/v1/chat/completions/render", True),
        ("/v1/chat/completions?x=1", True),
        ("/v1/completions", False),
        ("/v1/completions/render", False),
        ("/v1/xchat/completions", False),
        ("/unknown", False),
        ("", False),
    ],
)
def test_the_path_chooses_the_api_on_whole_segments(path: str, is_chat: bool):
    chat = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    if is_chat:
        assert parse(path, chat).prompt_text == b"user\nx\n"
    else:
        assert refusal(path, chat) == "prompt is required: a text, texts or token ids"


def test_made_up_paths_do_not_pile_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(openai, "MAX_REMEMBERED_PATHS", 4)
    parser = make_plugin(OpenAIParser)
    for i in range(50):
        parser.parse(HEADERS, f"/{i}/completions", b'{"model": "m", "prompt": "x"}')
    assert len(parser._by_path) <= 4


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the request body is not valid JSON: Expecting value (line 1, column 1, offset 0)"),
        (
            b"no healthy upstream",
            "the request body is not valid JSON: Expecting value (line 1, column 1, offset 0)",
        ),
        (
            b'{"model": "m",\n "messages" []}',
            "the request body is not valid JSON: Expecting ':' delimiter (line 2, column 13, offset 27)",
        ),
        (
            b'{"model": "m"',
            "the request body is not valid JSON: Expecting ',' delimiter (line 1, column 14, offset 13)",
        ),
        (
            b'{"model": "m"} x',
            "the request body is not valid JSON: Extra data (line 1, column 16, offset 15)",
        ),
        (
            b'\xef\xbb\xbf{"model": "m"}',
            "the request body begins with a byte order mark, which JSON must not have",
        ),
        (b'{"model": "\xff"}', "the request body is not UTF-8 text (offset 11)"),
        (b"[" * 100_000, "the request body is nested too deeply"),
        (b'{"x":' * 100_000, "the request body is nested too deeply"),
        (b"[1]", "the request body must be a JSON object"),
        (b"7", "the request body must be a JSON object"),
        (b"null", "the request body must be a JSON object"),
    ],
    ids=lambda value: repr(value[:12]),
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES])
def test_a_body_that_is_no_json_object_is_refused_with_its_place(path: str, body: bytes, message: str):
    assert refusal(path, body) == message


def test_numbers_beyond_all_bounds_are_refused():
    assert refusal(CHAT, b'{"model": "m", "messages": [NaN], "x": ' + b"9" * 5000 + b"}").startswith(
        "the request body has an integer of more than 4300 digits"
    )


def test_what_a_model_server_would_read_is_read_leniently():
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": ["plain", {"type": "text", "text": "x", "image_url": 7}, 5]},
            {"role": 5, "content": {"odd": 1}},
            "not a message",
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        ],
        "stream": "yes",
        "max_tokens": 12.0,
        "tools": {"a": [1, "ü"]},
    }
    assert parse(CHAT, body) == ParsedBody(
        model="m",
        prompt_text='{"a":[1,"ü"]}user\nplain\nx\n\nassistant\n[{"id":"1"}]\n'.encode(),
        max_output_tokens=12,
        model_use=ModelUse.REQUIRED,
    )
    assert parse(CHAT, {**body, "max_tokens": 12.5}).max_output_tokens is None


def test_numbers_that_only_python_reads_do_not_hurt():
    body = b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800x"}], "temperature": NaN}'
    assert parse(CHAT, body).prompt_text == b"user\n\xed\xa0\x80x\n"


def test_a_repeated_key_counts_as_the_last_one_as_in_model_servers():
    assert parse(COMPLETIONS, b'{"model": "a", "prompt": "x", "model": "b"}').model == "b"


def test_responses_are_read_for_usage():
    assert isinstance(make_plugin(OpenAIParser).response_reader(True), UsageReader)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "text", "url", "image_url", "tool_calls", "output"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    ["model", "messages", "prompt", "input", "items", "stream", "max_tokens", "tools", "instructions"]
)


@given(st.sampled_from(OpenAIParser.claims), st.dictionaries(FIELDS, VALUES))
def test_any_json_object_is_parsed_or_refused(claim: str, data: dict[str, Any]):
    try:
        parsed = parse(f"/v1/{claim}", json.dumps(data).encode())
    except BadRequestError:
        return
    assert isinstance(parsed.prompt_text, bytes)
    assert msgspec.json.encode(parsed.model)


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(body: bytes):
    with contextlib.suppress(BadRequestError):
        assert parse(CHAT, body).model
