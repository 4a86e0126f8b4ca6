"""vllmhttp-parser: token ids are the prompt, and media in it are told apart."""

import contextlib
import json
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import BadRequestError
from dataplane.payload.token_usage import Usage
from epp.interfaces.request import MediaKind, Medium, ModelUse, ParsedBody
from epp.plugins.media import MAX_MEDIA, media_digest
from epp.plugins.parsers.vllm_http import VllmHttpParser
from tests.support.parsers import bytewise, cut, parse_with, read_with, refusal_of

PATH = "/inference/v1/generate"


def parse(body: Any) -> ParsedBody:
    return parse_with(VllmHttpParser, PATH, body)


def refusal(body: Any) -> str:
    return refusal_of(VllmHttpParser, PATH, body)


def mark(reference: str) -> int:
    """The id that stands for a medium."""
    return xxhash.xxh3_64_intdigest(reference.encode()) & 0xFFFF_FFFF


def tokens_with(features: Any) -> list[int] | None:
    """Prompt tokens of a prompt of six with these features."""
    return parse({"token_ids": [1, 9, 9, 4, 9, 6], "features": features}).prompt_tokens


def test_claims_the_generate_api():
    assert list(VllmHttpParser.claims) == ["inference/v1/generate"]


def test_reads_a_request():
    body = {
        "request_id": "r",
        "model": "m",
        "token_ids": [1, 2, 4294967295],
        "sampling_params": {"max_tokens": 5, "temperature": 0.5},
        "stream": True,
        "cache_salt": "tenant-1",
    }
    assert parse(body) == ParsedBody(
        model="m",
        stream=True,
        prompt_tokens=[1, 2, 4294967295],
        max_output_tokens=5,
        cache_salt="tenant-1",
        model_use=ModelUse.OPTIONAL,
    )


def test_everything_but_the_tokens_may_be_absent():
    assert parse({"token_ids": [1]}) == ParsedBody(prompt_tokens=[1], model_use=ModelUse.OPTIONAL)
    nulls = dict.fromkeys(["model", "features", "sampling_params", "stream", "cache_salt"])
    assert parse({**nulls, "token_ids": []}) == ParsedBody(prompt_tokens=[], model_use=ModelUse.OPTIONAL)
    assert parse({"token_ids": [1], "sampling_params": {"max_tokens": -1}}).max_output_tokens is None


def test_media_are_told_apart_by_their_hashes():
    places = {"image": [{"offset": 1, "length": 2}, {"offset": 4, "length": 1}]}
    first = tokens_with({"mm_hashes": {"image": ["a", "b"]}, "mm_placeholders": places})
    assert first == [1, mark("a"), mark("a"), 4, mark("b"), 6]
    assert tokens_with({"mm_hashes": {"image": ["a", "c"]}, "mm_placeholders": places}) != first


@pytest.mark.parametrize(
    "place",
    [
        {"offset": -1, "length": 2},
        {"offset": 5, "length": 2},
        {"offset": 0, "length": 0},
        {"offset": 0, "length": -1},
        {"offset": 1 << 70, "length": 1},
        {"offset": 0, "length": 1 << 70},
        {},
    ],
)
def test_places_outside_the_prompt_are_ignored(place: dict[str, int]):
    features = {"mm_hashes": {"image": ["a"]}, "mm_placeholders": {"image": [place]}}
    assert tokens_with(features) == [1, 9, 9, 4, 9, 6]


def test_places_that_must_overlap_are_ignored():
    places = [{"offset": 0, "length": 4}, {"offset": 0, "length": 4}, {"offset": 4, "length": 2}]
    features = {"mm_hashes": {"image": ["a", "b", "c"]}, "mm_placeholders": {"image": places}}
    assert tokens_with(features) == [mark("a")] * 4 + [mark("c")] * 2


@pytest.mark.parametrize(
    "features",
    [
        "packed",
        {},
        {"mm_hashes": {"image": ["a"]}},
        {"mm_placeholders": {"image": [{"offset": 0, "length": 1}]}},
        {"mm_hashes": {"image": ["a"]}, "mm_placeholders": {"audio": [{"offset": 0, "length": 1}]}},
        {"mm_hashes": ["a"], "mm_placeholders": 7},
    ],
    ids=range(6),
)
def test_incomplete_features_change_nothing(features: Any):
    assert tokens_with(features) == [1, 9, 9, 4, 9, 6]


def test_odd_fields_do_not_hide_the_rest():
    features = {
        "mm_hashes": {"image": ["a", None], "audio": "x"},
        "mm_placeholders": {"image": [{"offset": 0, "length": 1}]},
    }
    body = {"token_ids": [1, 2], "features": features, "stream": "odd", "sampling_params": [1]}
    image = Medium(MediaKind.IMAGE, media_digest("a"), tokens=1)
    assert parse(body) == ParsedBody(prompt_tokens=[mark("a"), 2], media=[image], model_use=ModelUse.OPTIONAL)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"model": "m"}, "token_ids is required: a list of token ids"),
        ({"token_ids": "abc"}, "token_ids is required: a list of token ids"),
        ({"token_ids": [1, -1]}, "token_ids has a token id outside 0 to 4294967295"),
        ({"token_ids": [1 << 32]}, "token_ids has a token id outside 0 to 4294967295"),
        (
            b'{"token_ids": [1,',
            "the request body is not valid JSON: Expecting value (line 1, column 18, offset 17)",
        ),
        (b"[1]", "the request body must be a JSON object"),
        (b'{"token_ids": ' + b"[" * 100_000, "the request body is nested too deeply"),
    ],
    ids=range(7),
)
def test_what_cannot_be_understood_is_refused_with_its_place(body: Any, message: str):
    assert refusal(body) == message


def test_usage_is_read_when_the_server_reports_it():
    body = json.dumps(
        {"choices": [{"token_ids": [1]}], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    )
    assert read_with(VllmHttpParser, False, body.encode()) == (Usage(7, 1), 0)
    stream = b'data: {"choices": []}\n\ndata: ' + body.encode() + b"\n\ndata: [DONE]\n\n"
    assert read_with(VllmHttpParser, True, *bytewise(stream)) == (Usage(7, 1), 2)
    assert read_with(VllmHttpParser, False, b'{"choices": []}') == (None, 0)


@given(
    st.lists(st.sampled_from(['{"choices": []}', '{"usage": {"prompt_tokens": 3}}']), max_size=5),
    st.lists(st.integers(0, 300), max_size=8),
)
def test_any_cut_of_a_stream_gives_the_same(events: list[str], cuts: list[int]):
    stream = "".join(f"data: {event}\n\n" for event in events).encode()
    usage = Usage(prompt_tokens=3) if any("usage" in event for event in events) else None
    assert read_with(VllmHttpParser, True, *cut(stream, cuts)) == (usage, len(events))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["mm_hashes", "mm_placeholders", "offset", "length", "max_tokens"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)
FIELDS = st.sampled_from(["model", "token_ids", "features", "sampling_params", "stream", "cache_salt"])


@given(st.dictionaries(FIELDS, VALUES), st.lists(st.integers(0, 9), max_size=5))
def test_any_json_object_is_parsed_or_refused(data: dict[str, Any], tokens: list[int]):
    for body in (data, {**data, "token_ids": tokens}):
        with contextlib.suppress(BadRequestError):
            assert isinstance(parse(json.dumps(body).encode()).prompt_tokens, list)


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(body: bytes):
    with contextlib.suppress(BadRequestError):
        parse(body)


def test_media_are_known_by_their_hashes_and_places():
    places = {"image": [{"offset": 1, "length": 2}], "audio": [{"offset": 4, "length": 1}]}
    hashes = {"image": ["a", "b"], "audio": ["a"], "smell": ["c"]}
    features = {"mm_hashes": hashes, "mm_placeholders": places}
    body = parse({"token_ids": [1, 9, 9, 4, 9, 6], "features": features})
    assert body.media is not None
    assert [(str(m.kind), m.tokens) for m in body.media] == [("image", 2), ("image", 0), ("audio", 1)]
    first, second, third = (medium.digest for medium in body.media)
    assert first == third != second
    assert parse({"token_ids": [1], "features": {"mm_hashes": {"smell": ["c"]}}}).media is None
    assert parse({"token_ids": [1]}).media is None
    hashes = {"image": ["a"] * 3000, "video": ["b"] * 3000}
    many = parse({"token_ids": [1], "features": {"mm_hashes": hashes}})
    assert many.media is not None
    assert len(many.media) == MAX_MEDIA
