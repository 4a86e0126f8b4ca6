"""sglanghttp-parser: prompts of every form, and usage from meta_info whatever else it holds."""

import contextlib
import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import BadRequestError
from dataplane.payload.token_usage import Usage
from epp.interfaces.request import ParsedBody
from epp.plugins import meta_info_usage
from epp.plugins.meta_info_usage import MetaInfoReader
from epp.plugins.parsers.sglang_http import SglangHttpParser
from tests.support.parsers import bytewise, cut, parse_with, read_with, refusal_of

PATH = "/generate"


def parse(body: Any) -> ParsedBody:
    return parse_with(SglangHttpParser, PATH, body)


def refusal(body: Any) -> str:
    return refusal_of(SglangHttpParser, PATH, body)


def read(streaming: bool, *chunks: bytes) -> tuple[Usage | None, int]:
    return read_with(SglangHttpParser, streaming, *chunks)


def answer(answer_id: str, *counts: int, **more: Any) -> dict[str, Any]:
    """One answer, its prompt, completion and cached tokens, and more between them."""
    names = ["prompt_tokens", "completion_tokens", "cached_tokens"]
    found = dict(zip(names, counts, strict=False))
    meta = {"id": answer_id, "finish_reason": {"type": "stop", "matched": 2}, **more, **found}
    return {"text": 'say "id": "x", "prompt_tokens": 9,', "output_ids": [1, 2], "meta_info": meta}


def sse(*events: Any) -> bytes:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode() + b"data: [DONE]\n\n"


def test_claims_generate():
    assert list(SglangHttpParser.claims) == ["generate"]


def test_reads_a_text():
    body = {
        "text": "Grüße",
        "sampling_params": {"max_new_tokens": 5, "temperature": 0},
        "stream": True,
        "extra_key": "tenant-1",
        "model": "m",
    }
    assert parse(body) == ParsedBody(
        model="m", stream=True, prompt_text="Grüße".encode(), max_output_tokens=5, cache_salt="tenant-1"
    )
    assert parse({"text": "x"}) == ParsedBody(prompt_text=b"x")


def test_reads_token_ids_which_win_over_a_text():
    assert parse({"input_ids": [1, 2, 3]}) == ParsedBody(prompt_tokens=[1, 2, 3])
    assert parse({"input_ids": [1], "text": "x"}) == ParsedBody(prompt_tokens=[1])
    assert parse({"input_ids": []}) == ParsedBody(prompt_tokens=[])


def test_reads_batches():
    params = [{"max_new_tokens": 5}, {"max_new_tokens": 6}]
    assert parse({"text": ["a", "b"], "sampling_params": params}) == ParsedBody(batch=[b"a", b"b"])
    ids = parse({"input_ids": [[1, 2], [3]]})
    assert ids == ParsedBody(batch=[array("I", [1, 2]).tobytes(), array("I", [3]).tobytes()])


def test_adapters_stand_for_the_model():
    assert parse({"text": "x", "lora_path": "a1"}).model == "a1"
    assert parse({"text": "x", "lora_path": "a1", "model": "m"}).model == "m"
    assert parse({"text": ["x", "y"], "lora_path": ["a1", None]}).model == ""


def test_prompts_with_other_media_are_other_prompts():
    salts = {
        parse({"text": "x", "extra_key": "k", **media}).cache_salt
        for media in (
            {},
            {"image_data": "http://x/a.png"},
            {"image_data": "http://x/b.png"},
            {"image_data": ["http://x/a.png", "http://x/b.png"]},
            {"audio_data": "http://x/a.wav"},
            {"video_data": "http://x/a.mp4"},
        )
    }
    assert len(salts) == 6
    assert all(salt.startswith("k") for salt in salts)
    same = parse({"text": "x", "image_data": "a"}).cache_salt
    assert parse({"text": "y", "image_data": "a", "audio_data": None}).cache_salt == same
    assert parse({"text": "x", "image_data": None, "audio_data": []}).cache_salt == ""
    assert parse({"text": ["x", "y"], "extra_key": ["a", "b"]}).cache_salt == "a/b"


def test_embeddings_are_routed_without_a_prompt():
    assert parse({"input_embeds": [[0.5]]}) == ParsedBody()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "text or input_ids is required: a prompt, or a list of prompts"),
        (
            {"text": None, "input_embeds": None},
            "text or input_ids is required: a prompt, or a list of prompts",
        ),
        ({"text": 5}, "text or input_ids is required: a prompt, or a list of prompts"),
        ({"input_ids": [1, [2]]}, "input_ids mixes token ids and lists of token ids"),
        ({"input_ids": [-1]}, "input_ids has a token id outside 0 to 4294967295"),
        ({"input_ids": [[1], [1 << 32]]}, "input_ids has a token id outside 0 to 4294967295"),
        (b'{"text": x}', "the request body is not valid JSON: Expecting value (line 1, column 10, offset 9)"),
        (b"7", "the request body must be a JSON object"),
        (b"[" * 100_000, "the request body is nested too deeply"),
    ],
    ids=range(9),
)
def test_what_cannot_be_understood_is_refused_with_its_place(body: Any, message: str):
    assert refusal(body) == message


def test_reads_a_plain_body():
    body = answer("a", 7, 3, 4)
    assert read(False, json.dumps(body).encode()) == (Usage(7, 3, None, 4), 0)
    assert read(False, json.dumps(body, indent=2).encode()) == (Usage(7, 3, None, 4), 0)
    assert read(False, json.dumps(body, separators=(",", ":")).encode()) == (Usage(7, 3, None, 4), 0)


def test_events_of_one_answer_repeat_its_counts():
    stream = sse(answer("a", 7, 1, 4), answer("a", 7, 2, 4), answer("a", 7, 3, 4))
    assert read(True, stream) == (Usage(7, 3, None, 4), 3)


def test_answers_are_added_up():
    assert read(False, json.dumps([answer("a", 7, 3, 4), answer("b", 5, 2, 0)]).encode())[0] == Usage(
        12, 5, None, 4
    )
    stream = sse(answer("a", 7, 1, 4), answer("b", 5, 1, 0), answer("a", 7, 3, 4), answer("b", 5, 2, 0))
    assert read(True, stream) == (Usage(12, 5, None, 4), 4)


def test_megabytes_between_the_counts_do_not_hide_them():
    logprobs = [[-0.5, 17, None]] * 20_000
    body = json.dumps(answer("a", 7, 3, 4, input_token_logprobs=logprobs)).encode()
    reader = MetaInfoReader(False)
    for i in range(0, len(body), 1000):
        reader.feed(body[i : i + 1000])
        assert len(reader._tail) < 200
    assert reader.finish() == Usage(7, 3, None, 4)


def test_the_answers_told_apart_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(meta_info_usage, "MAX_ANSWERS", 2)
    body = json.dumps([answer(str(i), 1, 1, 0) for i in range(5)]).encode()
    assert read(False, body)[0] == Usage(2, 2, None, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"text": "x"}',
        '{"meta_info": {"id": "a"}}',
        '{"meta_info": {"prompt_tokens": null}}',
        '{"meta_info": {"prompt_tokens": -1}}',
        '{"meta_info": {"prompt_tokens": 1.5}}',
        '{"meta_info": {"prompt_tokens": "7"}}',
        '{"meta_info": {"prompt_tokens": 999999999999999999}}',
        '{"meta_info": {"prompt_tokens": 7',
        '{"error": {"message": "\\"prompt_tokens\\": 7,"}}',
    ],
)
def test_what_is_no_usage_is_ignored(text: str):
    assert read(False, text.encode())[0] is None


ANSWERS = st.lists(
    st.builds(
        answer,
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 99),
        st.integers(0, 99),
        st.integers(0, 99),
        note=st.text(alphabet='ab"\\{}\n:,id', max_size=9),
    ),
    max_size=5,
)


@given(ANSWERS, st.lists(st.integers(0, 3000), max_size=12), st.sampled_from([None, 1]))
def test_any_cut_of_a_stream_gives_the_same(answers: list[Any], cuts: list[int], indent: int | None):
    stream = sse(*answers)
    last = {a["meta_info"]["id"]: a["meta_info"] for a in answers}.values()
    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    prompt, completion, cached = (sum(meta[name] for meta in last) for name in names)
    expected = Usage(prompt, completion, None, cached) if answers else None
    assert read(True, stream) == (expected, len(answers))
    assert read(True, *cut(stream, cuts)) == read(True, *bytewise(stream)) == (expected, len(answers))
    plain = json.dumps(answers, indent=indent).encode()
    assert read(False, *cut(plain, cuts)) == read(False, plain) == (expected, 0)


@given(st.binary(max_size=120), st.lists(st.integers(0, 300), max_size=8), st.booleans())
def test_any_cut_of_anything_gives_the_same(data: bytes, cuts: list[int], streaming: bool):
    noise = data.replace(b"\0", b'"prompt_tokens": 3,').replace(b"\1", b'"id": "').replace(b"\2", b'"')
    assert read(streaming, *cut(noise, cuts)) == read(streaming, *bytewise(noise)) == read(streaming, noise)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["max_new_tokens", "a"]), inner, max_size=2)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["text", "input_ids", "input_embeds", "image_data", "sampling_params", "stream", "extra_key", "lora_path"]
)


@given(st.dictionaries(FIELDS, VALUES))
def test_any_json_object_is_parsed_or_refused(data: dict[str, Any]):
    with contextlib.suppress(BadRequestError):
        assert isinstance(parse(json.dumps(data).encode()).cache_salt, str)


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(body: bytes):
    with contextlib.suppress(BadRequestError):
        parse(body)
