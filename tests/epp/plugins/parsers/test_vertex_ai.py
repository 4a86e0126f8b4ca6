"""vertexai-parser: JSON of the OpenAI and Anthropic APIs is found in its messages, both ways."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import BadRequestError
from dataplane.payload.token_usage import Usage
from epp.graph.parser_table import ParserTable
from epp.interfaces.request import ParsedBody
from epp.plugins.parsers.vertex_ai import VertexAiParser
from tests.support.parsers import bytewise, cut, parse_with, read_with, refusal_of
from tests.support.pool import make_plugin

SERVICE = "/google.cloud.aiplatform.v1.PredictionService"
CHAT, RAW, STREAM_RAW = (f"{SERVICE}/{m}" for m in ("ChatCompletions", "RawPredict", "StreamRawPredict"))
MESSAGES = [{"role": "user", "content": "x"}]


def field(number: int, content: bytes) -> bytes:
    """A field of bytes; its length takes two bytes, which is as good as one."""
    assert len(content) < 1 << 14
    return bytes([number << 3 | 2, len(content) & 0x7F | 0x80, len(content) >> 7]) + content


def frame(message: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


def http_body(data: Any, content_type: str = "application/json") -> bytes:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return field(1, content_type.encode()) + field(2, raw)


def request(data: Any, content_type: str = "application/json") -> bytes:
    """A request with these data."""
    return frame(field(1, b"projects/p/locations/l/endpoints/1") + field(2, http_body(data, content_type)))


def parse(path: str, body: bytes) -> ParsedBody:
    return parse_with(VertexAiParser, path, body)


def read(streaming: bool, *chunks: bytes) -> tuple[Usage | None, int]:
    return read_with(VertexAiParser, streaming, *chunks)


def test_both_versions_are_claimed_by_their_full_names():
    parser = make_plugin(VertexAiParser)
    table = ParserTable([parser])
    for service in (SERVICE, SERVICE.replace("v1", "v1beta1"), "/PredictionService", "/x/PredictionService"):
        for method in ("ChatCompletions", "RawPredict", "StreamRawPredict"):
            assert table.find(f"{service}/{method}") is parser
    for path in (f"{SERVICE}/Predict", "/xPredictionService/RawPredict", "/RawPredict"):
        with pytest.raises(BadRequestError):
            table.find(path)


def test_reads_a_chat():
    data = {"model": "meta/llama", "messages": MESSAGES, "stream": True, "max_tokens": 5}
    expected = ParsedBody(model="meta/llama", stream=True, prompt_text=b"user\nx\n", max_output_tokens=5)
    assert parse(CHAT, request(data)) == parse(RAW, request(data)) == expected


def test_reads_messages_of_the_anthropic_api():
    data = {"anthropic_version": "vertex-2023-10-16", "messages": MESSAGES, "system": "s", "max_tokens": 5}
    expected = ParsedBody(prompt_text=b"system\ns\nuser\nx\n", max_output_tokens=5)
    assert parse(RAW, request(data)) == expected
    assert parse(STREAM_RAW, request(data)).stream is True


def test_reads_completions():
    assert parse(RAW, request({"prompt": [1, 2], "max_tokens": 5})) == ParsedBody(
        prompt_tokens=[1, 2], max_output_tokens=5
    )


def test_what_else_is_predicted_is_routed_without_a_prompt():
    assert parse(RAW, request({"instances": [1], "model": "m"})) == ParsedBody(model="m")
    assert parse(RAW, request(b"\xff\xfe", "application/octet-stream")) == ParsedBody()
    assert parse(STREAM_RAW, request(b"\xff\xfe", "image/png")) == ParsedBody(stream=True)
    assert parse(f"{SERVICE}/Predict", b"anything") == ParsedBody()


GRPC = "invalid or unsupported gRPC payload: "


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", GRPC + "the frame header is cut off (offset 0)"),
        (frame(b"", 1), GRPC + "the message is compressed (offset 0); send it with grpc-encoding identity"),
        (frame(b"\x12\x05a"), GRPC + "field 2 ends beyond its message (offset 5)"),
        (frame(b"\x12\x02\x12\x05"), GRPC + "field 2 ends beyond its message (offset 7)"),
        (frame(b""), "the request body is not valid JSON: Expecting value (line 1, column 1, offset 0)"),
        (
            request(b'{"messages": x}'),
            "the request body is not valid JSON: Expecting value (line 1, column 14, offset 13)",
        ),
        (request([]), "the request body must be a JSON object"),
        (request({"messages": []}), "messages must be a list of at least one message"),
    ],
    ids=range(8),
)
@pytest.mark.parametrize("path", [CHAT, RAW, STREAM_RAW])
def test_what_cannot_be_understood_is_refused_with_its_place(path: str, body: bytes, message: str):
    assert refusal_of(VertexAiParser, path, body) == message


OPENAI = {"usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}
START = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 2}}}
END = {"type": "message_delta", "usage": {"output_tokens": 3}}


def answer(data: bytes, *cuts: int) -> bytes:
    """An answer whose data come in several messages."""
    return b"".join(frame(http_body(piece)) for piece in cut(data, list(cuts)))


def sse(*events: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def test_reads_usage_of_either_api():
    assert read(False, answer(json.dumps(OPENAI).encode())) == (Usage(7, 3, 10), 0)
    assert read(True, answer(sse({}, OPENAI), 9, 20)) == (Usage(7, 3, 10), 2)
    assert read(True, answer(sse(START, {}, END), 40, 50)) == (Usage(7, 3, None, 2), 3)


@pytest.mark.parametrize("body", [b"", frame(b""), frame(b"\x12\x05a"), b"no frame at all", answer(b"{}")])
def test_what_is_no_usage_is_ignored(body: bytes):
    assert read(False, body) == (None, 0)


@given(
    st.lists(st.sampled_from([OPENAI, START, END, {"text": "data: usage"}]), max_size=5),
    st.lists(st.integers(0, 400), max_size=5),
    st.lists(st.integers(0, 900), max_size=9),
)
def test_any_cut_of_an_answer_gives_the_same(events: list[Any], messages: list[int], cuts: list[int]):
    data = sse(*events)
    whole = read(True, frame(http_body(data)))
    assert whole[1] == len(events)
    stream = answer(data, *messages)
    assert read(True, *cut(stream, cuts)) == read(True, *bytewise(stream)) == whole


@given(st.sampled_from([CHAT, RAW, STREAM_RAW]), st.binary(max_size=60), st.integers(0, 2))
def test_any_bytes_are_parsed_or_refused(path: str, data: bytes, wrapping: int):
    body = (data, frame(data), request(data))[wrapping]
    with contextlib.suppress(BadRequestError):
        assert isinstance(parse(path, body), ParsedBody)


VALUES = (
    st.none()
    | st.integers()
    | st.text(max_size=3)
    | st.lists(st.integers() | st.text(max_size=3), max_size=3)
)
NAMES = st.sampled_from(
    ["anthropic_version", "messages", "prompt", "model", "stream", "max_tokens", "system"]
)


@given(st.sampled_from([CHAT, RAW, STREAM_RAW]), st.dictionaries(NAMES, VALUES))
def test_any_json_object_is_parsed_or_refused(path: str, data: dict[str, Any]):
    with contextlib.suppress(BadRequestError):
        assert isinstance(parse(path, request(data)), ParsedBody)
