"""Usage and events are found whatever the chunks, and nothing else is kept."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.payload.openai_usage import MAX_USAGE_BYTES, UsageReader
from dataplane.payload.token_usage import Usage


def read(streaming: bool, *chunks: bytes) -> tuple[Usage | None, int]:
    """Usage and events of a response that came in these chunks."""
    reader = UsageReader(streaming)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish(), reader.events


def sse(*events: Any, end: str = "\n\n") -> bytes:
    """An event stream of these data, ended by [DONE]."""
    texts = [json.dumps(event) for event in events] + ["[DONE]"]
    return "".join(f"data: {text}{end}" for text in texts).encode()


FULL = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
}
FULL_USAGE = Usage(prompt_tokens=7, completion_tokens=3, total_tokens=10, cached_tokens=4)


def test_reads_a_plain_body():
    body = {
        "id": "x",
        "choices": [{"message": {"content": 'say "usage": {"prompt_tokens": 99}'}}],
        "usage": FULL,
    }
    assert read(False, json.dumps(body).encode()) == (FULL_USAGE, 0)
    assert read(False, json.dumps(body, indent=2).encode()) == (FULL_USAGE, 0)


def test_reads_the_names_of_the_responses_api():
    usage = {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}
    assert read(False, json.dumps({"usage": usage}).encode())[0] == Usage(5, 2, None, 1)
    event = {"type": "response.completed", "response": {"output": [], "usage": usage}}
    assert read(True, sse({"type": "response.created", "response": {"usage": None}}, event)) == (
        Usage(5, 2, None, 1),
        2,
    )


def test_reads_a_stream_and_counts_its_events():
    stream = sse({"choices": [], "usage": None}, {"choices": []}, {"usage": FULL})
    assert read(True, stream) == (FULL_USAGE, 3)
    assert read(True, sse({}, {}, end="\r\n\r\n")) == (None, 2)


def test_usage_and_end_may_come_in_different_chunks():
    assert read(True, b"data: {}\n\n", sse({"usage": FULL}), b"") == (FULL_USAGE, 2)


def test_later_reports_override_field_by_field():
    first = {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}
    second = {"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": None}
    third = {"completion_tokens": 2, "total_tokens": 9}
    assert read(True, sse({"usage": first}, {"usage": second}, {"usage": third})) == (Usage(7, 2, 9, 4), 3)


@pytest.mark.parametrize(
    "text",
    [
        '{"usage": null}',
        '{"usage":null}',
        '{"usage": "a lot"}',
        '{"usage": {}}',
        '{"usage": {"prompt_tokens": -1}}',
        '{"usage": {"prompt_tokens": "7"}}',
        '{"usage": {"prompt_tokens": 1e400}}',
        '{"usage": {"prompt_tokens": 99999999999999999999}}',
        '{"usage": {prompt_tokens: 7}}',
        '{"token": "usage", "logprob": -1}',
        '{"top_logprobs": [{"usage": -0.5}]}',
        '{"usage"',
        '{"usage": {"prompt_tokens": 7',
        "",
    ],
)
def test_what_is_no_usage_is_ignored(text: str):
    assert read(False, text.encode()) == (None, 0)
    assert read(True, b"data: " + text.encode() + b"\n\n")[0] is None


def test_other_things_called_usage_do_not_hide_the_real_one():
    body = {"logprobs": [{"usage": -1}], "usage": FULL, "metadata": {"usage": {"plan": "free"}, "x": "usage"}}
    assert read(False, json.dumps(body).encode())[0] == FULL_USAGE


def test_a_stream_without_end_mark_or_final_newline_is_counted():
    assert read(True, b"data: {}\n\ndata: {}") == (None, 2)
    assert read(True, b": ping\n\nevent: x\ndata: {}\n\n: data: no\n\n") == (None, 1)
    assert read(True, b"data: [DONE]") == (None, 0)
    assert read(True, b"data:[DONE]\n\n") == (None, 0)


def test_an_endless_usage_object_is_not_kept():
    reader = UsageReader(False)
    reader.feed(b'{"usage": {"x": "')
    for _ in range(100):
        reader.feed(b"y" * 1000)
    assert len(reader._carry) < 100
    reader.feed(b'"}, "usage": {"prompt_tokens": 1}}')
    assert reader.finish() == Usage(prompt_tokens=1)


def test_nothing_of_a_long_body_is_kept():
    reader = UsageReader(True)
    for _ in range(50):
        reader.feed(b"x" * 62_000)
        assert len(reader._carry) < 100


CONTENTS = st.text(alphabet='ab"\\{}\n: usage', max_size=12)
USAGES = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": st.integers(0, 99),
        "completion_tokens": st.integers(0, 99),
        "total_tokens": st.integers(0, 99),
        "prompt_tokens_details": st.none() | st.fixed_dictionaries({"cached_tokens": st.integers(0, 9)}),
    },
)
EVENTS = st.lists(
    st.fixed_dictionaries({"content": CONTENTS}, optional={"usage": st.none() | USAGES}), max_size=5
)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data in pieces."""
    edges = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(EVENTS, st.lists(st.integers(0, 2000), max_size=12), st.sampled_from(["\n\n", "\r\n\r\n"]))
def test_any_cut_of_a_stream_gives_the_same(events: list[dict[str, Any]], cuts: list[int], end: str):
    stream = sse(*events, end=end)
    whole = read(True, stream)
    assert whole[1] == len(events)
    assert read(True, *cut(stream, cuts)) == whole
    assert read(True, *(stream[i : i + 1] for i in range(len(stream)))) == whole
    expected: dict[str, int] = {}
    for event in events:
        usage = event.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        expected |= {k: v for k, v in {**usage, **details}.items() if k != "prompt_tokens_details"}
    assert whole[0] == (Usage(**expected) if expected else None)


@given(st.binary(max_size=120), st.lists(st.integers(0, 200), max_size=8), st.booleans())
def test_any_cut_of_anything_gives_the_same(data: bytes, cuts: list[int], streaming: bool):
    noise = data.replace(b"\0", b'"usage":{"prompt_tokens":3}').replace(b"\1", b"\ndata: [DONE]")
    assert read(streaming, *cut(noise, cuts)) == read(streaming, noise)


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_the_longest_object_is_the_same_in_one_chunk_or_many(excess: int):
    filler = "x" * (MAX_USAGE_BYTES - len(': {"prompt_tokens": 3, "x": ""}') + excess)
    body = f'{{"usage": {{"prompt_tokens": 3, "x": "{filler}"}}}}'.encode()
    expected = Usage(prompt_tokens=3) if excess <= 0 else None
    assert read(False, body)[0] == expected
    assert read(False, *(body[i : i + 7] for i in range(0, len(body), 7)))[0] == expected
