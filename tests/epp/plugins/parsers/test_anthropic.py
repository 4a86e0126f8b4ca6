"""anthropic-parser: what is understood of messages, and of usage that comes in parts."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import BadRequestError
from dataplane.payload.token_usage import Usage
from epp.interfaces.request import MediaKind, ModelUse, ParsedBody
from epp.plugins.anthropic_body import MAX_BLOCK_DEPTH
from epp.plugins.parsers.anthropic import AnthropicParser
from tests.support.parsers import bytewise, cut, parse_with, read_with, refusal_of

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"


def parse(body: Any, path: str = MESSAGES) -> ParsedBody:
    return parse_with(AnthropicParser, path, body)


def refusal(body: Any) -> str:
    return refusal_of(AnthropicParser, MESSAGES, body)


def text_of(*content: Any, **fields: Any) -> bytes:
    """Prompt text of one message with these blocks."""
    return parse({"model": "m", "messages": [{"role": "u", "content": list(content)}], **fields}).prompt_text


def read(streaming: bool, *chunks: bytes) -> tuple[Usage | None, int]:
    return read_with(AnthropicParser, streaming, *chunks)


def sse(*events: dict[str, Any]) -> bytes:
    """An event stream as this API names and ends its events."""
    return "".join(f"event: {e.get('type')}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def test_claims_messages_and_counting():
    assert list(AnthropicParser.claims) == ["messages", "messages/count_tokens"]


def test_reads_a_request():
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    body = {
        "model": "claude",
        "system": "Be kind.",
        "messages": [{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": "Hi"}],
        "stream": True,
        "max_tokens": 5,
        "tools": tools,
    }
    assert parse(body) == ParsedBody(
        model="claude",
        stream=True,
        prompt_text=json.dumps(tools).encode() + "system\nBe kind.\nuser\nGrüße\nassistant\nHi\n".encode(),
        max_output_tokens=5,
        model_use=ModelUse.REQUIRED,
    )


def test_a_system_prompt_may_be_blocks():
    blocks = [{"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}, {"text": "two"}]
    assert text_of({"type": "text", "text": "x"}, system=blocks) == b"system\none\ntwo\nu\nx\n"


def test_tool_use_and_results_belong_to_the_prompt():
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1]}}
    assert text_of({"type": "text", "text": "x"}, use) == b'u\nx\nf{"a": [1]}\n'
    assert text_of({"type": "tool_result", "tool_use_id": "t1", "content": "42"}) == b"u\n42\n"
    blocks = [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]
    assert text_of({"type": "tool_result", "tool_use_id": "t1", "content": blocks}) == b"u\n4\n2\n"
    assert text_of({"type": "tool_result", "tool_use_id": "t1"}) == b"u\n"


def test_thinking_and_search_results_belong_to_the_prompt():
    assert text_of({"type": "thinking", "thinking": "hm", "signature": "s"}) == b"u\nhm\n"
    found = {"type": "search_result", "source": "http://x", "content": [{"type": "text", "text": "y"}]}
    assert text_of(found) == b"u\nhttp://x\ny\n"


@pytest.mark.parametrize(
    ("source", "other"),
    [
        ({"type": "base64", "media_type": "image/png", "data": "AAAA"}, {"type": "base64", "data": "AAAB"}),
        ({"type": "url", "url": "http://x/a.png"}, {"type": "url", "url": "http://x/b.png"}),
        ({"type": "file", "file_id": "f1"}, {"type": "file", "file_id": "f2"}),
    ],
    ids=["data", "address", "file"],
)
@pytest.mark.parametrize("kind", ["image", "document"])
def test_media_are_told_apart_by_what_they_are(kind: str, source: dict[str, Any], other: dict[str, Any]):
    first, second, third = (text_of({"type": kind, "source": s}) for s in (source, dict(source), other))
    assert first == second != third
    block = {"type": kind, "source": source}
    tools = [{"name": "f"}]
    body = parse({"model": "m", "messages": [{"role": "u", "content": [block]}], "tools": tools})
    assert body.media is not None
    (medium,) = body.media
    assert medium.kind is {"image": MediaKind.IMAGE, "document": MediaKind.FILE}[kind]
    assert body.prompt_text == json.dumps(tools).encode() + b"u\n" + medium.digest.encode()
    assert medium.offset == len(body.prompt_text) - len(medium.digest)
    assert medium.size == (3 if "data" in source else 0)


def test_a_prompt_without_media_has_none():
    assert parse({"model": "m", "messages": [{"role": "u", "content": [{"text": "x"}]}]}).media is None


def test_an_image_in_a_tool_result_counts():
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    assert text_of({"type": "tool_result", "content": [image]}) == text_of(image)


def test_documents_of_text_are_text():
    assert text_of({"type": "document", "source": {"type": "text", "data": "long"}}) == b"u\nlong\n"
    inner = {"type": "content", "content": [{"type": "text", "text": "a"}]}
    assert text_of({"type": "document", "source": inner}) == b"u\na\n"
    assert text_of({"type": "document", "source": {"type": "content", "content": "b"}}) == b"u\nb\n"
    assert text_of({"type": "document", "source": {}}) == b"u\n"


def test_content_deeper_than_anyone_needs_is_left_out():
    block: dict[str, Any] = {"type": "text", "text": "x"}
    for _ in range(MAX_BLOCK_DEPTH - 1):
        block = {"type": "tool_result", "content": [block]}
    assert text_of(block) == b"u\nx\n"
    assert text_of({"type": "tool_result", "content": [block]}) == b"u\n"


@pytest.mark.parametrize("depth", [10, 100, 300, 900, 5000])
@pytest.mark.parametrize("odd", [b"", b'"stream": "odd", '], ids=["regular", "odd"])
def test_nested_content_never_breaks_the_parser(depth: int, odd: bytes):
    body = b'{%b"model": "m", "messages": [{"role": "u", "content": %b"x"%b}]}' % (
        odd,
        b'[{"content": ' * depth,
        b"}]" * depth,
    )
    with contextlib.suppress(BadRequestError):
        assert parse(body).prompt_text == b"u\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"model": "m"}, "messages must be a list of at least one message"),
        ({"model": "m", "messages": []}, "messages must be a list of at least one message"),
        ({"model": "m", "messages": "x"}, "messages must be a list of at least one message"),
        (
            b'{"model": "m",\n "messages" []}',
            "the request body is not valid JSON: Expecting ':' delimiter (line 2, column 13, offset 27)",
        ),
        (b'{"model": "\xff"}', "the request body is not UTF-8 text (offset 11)"),
        (b"[]", "the request body must be a JSON object"),
        (b"[" * 100_000, "the request body is nested too deeply"),
    ],
    ids=range(7),
)
def test_what_cannot_be_understood_is_refused_with_its_place(body: Any, message: str):
    assert refusal(body) == message


@pytest.mark.parametrize("model", [{}, {"model": 5}, {"model": None}], ids=str)
def test_a_body_without_model_is_said_to_need_one(model: dict[str, Any]):
    parsed = parse({**model, "messages": [{"role": "user", "content": "x"}]})
    assert (parsed.model, parsed.model_use) == ("", ModelUse.REQUIRED)


def test_what_a_model_server_would_read_is_read_leniently():
    body = {
        "model": "m",
        "system": ["plain", {"type": "text", "text": "x"}, 7],
        "messages": [{"role": 5, "content": {"odd": 1}}, {"role": "user", "content": ["a", None]}],
        "max_tokens": "many",
        "stream": 1,
    }
    assert parse(body) == ParsedBody(
        model="m", prompt_text=b"system\nplain\nx\n\nuser\na\n", model_use=ModelUse.REQUIRED
    )
    assert parse({**body, "max_tokens": -1}).max_output_tokens is None


@pytest.mark.parametrize("path", [COUNT, COUNT + "/", COUNT + "?beta=true"])
def test_counting_is_only_routed(path: str):
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 3}
    assert parse(body, path) == ParsedBody(model="m", model_use=ModelUse.OPTIONAL)
    assert parse({}, path) == ParsedBody(model_use=ModelUse.OPTIONAL)
    assert parse(b"no json", path) == ParsedBody()
    assert read(False, b'{"input_tokens": 14}') == (None, 0)


START = {
    "type": "message_start",
    "message": {
        "content": [],
        "usage": {
            "input_tokens": 25,
            "cache_creation_input_tokens": 3,
            "cache_read_input_tokens": 100,
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 1,
        },
    },
}
TEXT = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 'say "usage": {'}}
END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}}
STOP = {"type": "message_stop"}


def test_usage_of_a_stream_is_merged_field_by_field():
    assert read(True, sse(START, TEXT, END, STOP)) == (Usage(128, 15, None, 100), 4)


def test_later_reports_win_unless_they_are_filled_with_zeros():
    late = {"type": "message_delta", "usage": {"input_tokens": 30, "output_tokens": 15}}
    assert read(True, sse(START, late)) == (Usage(133, 15, None, 100), 2)
    zeros = {"usage": {"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 15}}
    assert read(True, sse(START, zeros))[0] == Usage(128, 15, None, 100)
    early = {"message": {"usage": {"input_tokens": 0, "output_tokens": 0}}}
    assert read(True, sse(early))[0] == Usage(0, 0, None, None)
    assert read(True, sse(early, late))[0] == Usage(30, 15, None, None)


def test_reads_a_plain_body():
    tool_use = {"type": "tool_use", "input": {"usage": {"input_tokens": 999, "output_tokens": "x"}}}
    body = {"content": [tool_use], "usage": {"input_tokens": 7, "output_tokens": 3, "server_tool_use": None}}
    assert read(False, json.dumps(body).encode()) == (Usage(7, 3, None, None), 0)
    assert read(False, b'{"type": "error"}') == (None, 0)
    assert read(False, b'{"usage": {"output_tokens": -1}}') == (None, 0)


def test_an_end_mark_is_no_event():
    assert read(True, sse(START, STOP) + b"data: [DONE]\n\n") == (Usage(128, 1, None, 100), 2)


COUNTS = st.integers(0, 99)
REPORTS = st.fixed_dictionaries(
    {},
    optional={
        "input_tokens": COUNTS,
        "output_tokens": COUNTS,
        "cache_read_input_tokens": COUNTS | st.none(),
        "cache_creation_input_tokens": COUNTS,
    },
)
TEXTS = st.text(alphabet='ab"\\{}\n: usage', max_size=12)
EVENTS = st.lists(st.fixed_dictionaries({"text": TEXTS}, optional={"usage": st.none() | REPORTS}), max_size=5)


@given(EVENTS, st.lists(st.integers(0, 2000), max_size=12))
def test_any_cut_of_a_stream_gives_the_same(events: list[dict[str, Any]], cuts: list[int]):
    stream = sse(*events)
    whole = read(True, stream)
    assert whole[1] == len(events)
    assert read(True, *cut(stream, cuts)) == read(True, *bytewise(stream)) == whole
    known: dict[str, int] = {}
    for event in events:
        report = event.get("usage") or {}
        known |= {k: v for k, v in report.items() if v or (v is not None and k not in known)}
    inputs = [known[k] for k in known if k != "output_tokens"]
    expected = Usage(
        sum(inputs) if inputs else None,
        known.get("output_tokens"),
        None,
        known.get("cache_read_input_tokens"),
    )
    assert whole[0] == (expected if known else None)


@given(st.binary(max_size=120), st.lists(st.integers(0, 200), max_size=8), st.booleans())
def test_any_cut_of_anything_gives_the_same(data: bytes, cuts: list[int], streaming: bool):
    noise = data.replace(b"\0", b'"usage":{"input_tokens":3}').replace(b"\1", b"\ndata: [DONE]")
    assert read(streaming, *cut(noise, cuts)) == read(streaming, noise)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "text", "type", "source", "data", "input", "thinking"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)
FIELDS = st.sampled_from(["model", "messages", "system", "stream", "max_tokens", "tools"])


@given(st.sampled_from([MESSAGES, COUNT]), st.dictionaries(FIELDS, VALUES))
def test_any_json_object_is_parsed_or_refused(path: str, data: dict[str, Any]):
    with contextlib.suppress(BadRequestError):
        assert isinstance(parse(json.dumps(data).encode(), path).prompt_text, bytes)


@given(st.sampled_from([MESSAGES, COUNT]), st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(path: str, body: bytes):
    with contextlib.suppress(BadRequestError):
        assert isinstance(parse(body, path), ParsedBody)
