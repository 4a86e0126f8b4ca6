"""vllmgrpc-parser: messages that protobuf encodes are understood, others are refused or ignored."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import BadRequestError
from dataplane.payload.token_usage import Usage
from epp.interfaces.request import ParsedBody
from epp.plugins.parsers.vllm_grpc import VllmGrpcParser
from tests.support.parsers import bytewise, cut, parse_with, read_with, refusal_of
from tests.support.vllm_messages import EMBED, GENERATE, encoded, frame


def parse(body: bytes, path: str = GENERATE) -> ParsedBody:
    return parse_with(VllmGrpcParser, path, body)


def request(**values: Any) -> ParsedBody:
    return parse(encoded("GenerateRequest", **values))


def read(streaming: bool, *chunks: bytes) -> tuple[Usage | None, int]:
    return read_with(VllmGrpcParser, streaming, *chunks)


def chunk(prompt: int, completion: int, cached: int, index: int = 0) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "cached_tokens": cached}
    return encoded("GenerateResponse", chunk={"token_ids": [5] * completion, "index": index, **counts})


def complete(prompt: int, completion: int, cached: int, index: int = 0) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "cached_tokens": cached}
    return encoded("GenerateResponse", complete={"finish_reason": "stop", "index": index, **counts})


def test_claims_two_methods():
    assert [f"/{claim}" for claim in VllmGrpcParser.claims] == [GENERATE, EMBED]


def test_reads_token_ids():
    assert request(
        request_id="r",
        tokenized={"original_text": "abc", "input_ids": [1, 300, 4294967295]},
        sampling_params={"temperature": 0.5, "max_tokens": 5, "stop": ["x"]},
        stream=True,
    ) == ParsedBody(stream=True, prompt_tokens=[1, 300, 4294967295], max_output_tokens=5)
    assert parse(encoded("GenerateRequest", tokenized={"input_ids": [7]}), EMBED) == ParsedBody(
        prompt_tokens=[7]
    )


def test_reads_a_text():
    assert request(text="Grüße") == ParsedBody(prompt_text="Grüße".encode())
    assert request(tokenized={"original_text": "abc"}) == ParsedBody(prompt_text=b"abc")


def test_a_request_without_a_prompt_is_routed():
    assert request() == request(sampling_params={}) == ParsedBody()


def test_token_ids_need_not_be_packed():
    assert parse(frame(b"\x12\x07\x10\x05\x12\x01\x06\x10\x07")).prompt_tokens == [5, 6, 7]


def test_a_limit_of_zero_is_one_when_it_is_written():
    assert parse(frame(b"\x22\x02\x40\x00")).max_output_tokens == 0


def test_prompts_with_other_images_are_other_prompts():
    salts = [request(text="x", mm_inputs={"image_data": [data]}).cache_salt for data in (b"a", b"b", b"a")]
    assert salts[0] == salts[2] != salts[1]
    assert request(text="x", mm_inputs={}).cache_salt == ""


@pytest.mark.parametrize(
    "path", ["/vllm.grpc.engine.VllmEngine/HealthCheck", "/xvllm.grpc.engine.VllmEngine", "/"]
)
def test_other_methods_are_routed_without_being_understood(path: str):
    assert parse(b"anything", path) == ParsedBody()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the frame header is cut off (offset 0)"),
        (frame(b"\x08\x01", 1), "the message is compressed (offset 0); send it with grpc-encoding identity"),
        (frame(b"\x08\x01")[:-1], "the message is cut off (offset 6 of 7)"),
        (frame(b"\x08\x01\x00\x00"), "a field has number 0 (offset 7)"),
        (frame(b"\x12\x02\x12\x05"), "field 2 ends beyond its message (offset 7)"),
        (frame(b"\x12\x04\x12\x02\x01\x80"), "a number is cut off (offset 11)"),
        (frame(b"\x22\x01\x40"), "a number is cut off (offset 8)"),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("path", [GENERATE, EMBED])
def test_what_cannot_be_understood_is_refused_with_its_place(path: str, body: bytes, reason: str):
    assert refusal_of(VllmGrpcParser, path, body) == f"invalid or unsupported gRPC payload: {reason}"


def test_reads_a_whole_answer():
    assert read(False, complete(7, 3, 4)) == (Usage(7, 3, None, 4), 0)
    assert read(False, complete(7, 3, 0)) == (Usage(7, 3, None, 0), 0)


def test_samples_add_to_the_output_not_to_the_prompt():
    assert read(False, complete(7, 3, 4) + complete(7, 2, 4, 1))[0] == Usage(7, 5, None, 4)


def test_chunks_tell_what_is_new_in_them():
    stream = chunk(7, 1, 4) + chunk(7, 2, 4)
    assert read(True, stream) == (Usage(7, 3, None, 4), 2)
    assert read(True, stream + complete(7, 3, 4)) == (Usage(7, 3, None, 4), 3)


def test_reads_an_embedding():
    answer = encoded("EmbedResponse", embedding=[0.5, -1.0], prompt_tokens=7, dim=2)
    assert read(False, answer) == (Usage(prompt_tokens=7), 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        frame(b""),
        chunk(0, 0, 0),
        frame(b"\x0a\x02\x10"),
        frame(b"\x0a\x06\x10\xff\xff\xff\xff\x7f"),
        frame(b"\x10\xff\xff\xff\xff\x7f"),
        frame(b"\x0a\x02\x10\x07\x12\x02\x18\x07"),
        frame(b"\x0a\x02\x10\x07", 1),
        complete(7, 3, 4)[:-1],
        b"upstream connect error",
    ],
    ids=range(10),
)
def test_what_is_no_usage_is_ignored(body: bytes):
    assert read(False, body) == (None, 0)


ANSWERS = st.lists(
    st.tuples(st.sampled_from([chunk, complete]), st.integers(1, 99), st.integers(0, 9), st.integers(0, 99)),
    max_size=6,
)


@given(ANSWERS, st.lists(st.integers(0, 400), max_size=12))
def test_any_cut_of_an_answer_gives_the_same(answers: list[tuple[Any, int, int, int]], cuts: list[int]):
    stream = b"".join(make(*counts) for make, *counts in answers)
    whole = read(True, stream)
    assert read(True, *cut(stream, cuts)) == read(True, *bytewise(stream)) == whole
    assert whole[1] == len(answers)
    if answers:
        outputs = {make: [c for m, _, c, _ in answers if m is make] for make in (complete, chunk)}
        _, prompt, _, cached = answers[-1]
        assert whole[0] == Usage(prompt, sum(outputs[complete] or outputs[chunk]), None, cached)


@given(st.binary(max_size=80), st.lists(st.integers(0, 100), max_size=8), st.booleans())
def test_any_cut_of_anything_gives_the_same(data: bytes, cuts: list[int], streaming: bool):
    noise = data.replace(b"\1", b"\0\0\0\0\4\x0a\2\x10\7")
    assert read(streaming, *cut(noise, cuts)) == read(streaming, noise)


@given(
    st.lists(st.integers(0, (1 << 32) - 1), max_size=9),
    st.text(max_size=4),
    st.integers(0, 1 << 20),
    st.booleans(),
)
def test_what_protobuf_encodes_is_read(ids: list[int], text: str, limit: int, stream: bool):
    parsed = request(
        tokenized={"input_ids": ids, "original_text": text},
        stream=stream,
        sampling_params={"max_tokens": limit},
    )
    assert parsed.prompt_tokens == (ids or None)
    assert parsed.prompt_text == (b"" if ids else text.encode())
    assert parsed.stream is stream
    assert parsed.max_output_tokens == (limit or None)


@given(st.binary(max_size=60), st.sampled_from([GENERATE, EMBED]), st.booleans())
def test_any_bytes_are_parsed_or_refused(data: bytes, path: str, framed: bool):
    with contextlib.suppress(BadRequestError):
        assert isinstance(parse(frame(data) if framed else data, path), ParsedBody)
