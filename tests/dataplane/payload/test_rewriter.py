"""What of JSON and of event streams is replaced, what is not, and that chunks make no difference."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dataplane.payload.member_scanner import MAX_HELD_BYTES, MAX_TEXT_BYTES
from dataplane.payload.rewriter import EventStreamRewriter, JsonRewriter
from tests.support.json_spellings import NEW, OLD, PATHS, Pair, cut, cuts, objects, values

CHAT = (("model",),)


def rewrite(kind: type[JsonRewriter], chunks: list[bytes], old: str = OLD, new: str = NEW) -> bytes:
    rewriter = kind(PATHS, old, new)
    return b"".join(rewriter.feed(chunk, i == len(chunks) - 1) for i, chunk in enumerate(chunks))


def plain(body: str, old: str = "target", new: str = "alias") -> str:
    return JsonRewriter(CHAT, old, new).feed(body.encode(), True).decode()


def events(body: str, old: str = "target", new: str = "alias") -> str:
    return EventStreamRewriter(PATHS, old, new).feed(body.encode(), True).decode()


# -- JSON -------------------------------------------------------------------------------------------------


@given(objects(), cuts)
@settings(max_examples=200)
def test_any_json_in_any_chunks_becomes_what_its_structure_says(text: Pair, places: list[int]):
    before, after = text
    assert rewrite(JsonRewriter, cut(before, places)) == after
    json.loads(after)


@given(objects())
@settings(max_examples=60)
def test_any_json_can_come_byte_by_byte(text: Pair):
    before, after = text
    assert rewrite(JsonRewriter, [before[i : i + 1] for i in range(len(before))]) == after


@given(values(("[]",)), cuts)
def test_value_that_is_no_object_passes(text: Pair, places: list[int]):
    before, _ = text
    if not before.startswith(b"{"):
        assert rewrite(JsonRewriter, cut(before, places)) == before


@given(st.binary(max_size=200) | st.text('{}[]":,\\ model', max_size=60).map(str.encode), cuts)
def test_what_is_no_json_loses_and_gains_nothing_but_whole_names(data: bytes, places: list[int]):
    assert rewrite(JsonRewriter, cut(data, places), "absent") == data
    assert rewrite(JsonRewriter, cut(data, places), "m") == rewrite(JsonRewriter, [data], "m")


@pytest.mark.parametrize(
    "body",
    [
        '{"choices":[{"message":{"content":"{\\"model\\":\\"target\\"}"}}]}',
        '{"text":"\\"model\\":\\"target\\"","x":{"model":"target"}}',
        '{"choices":[{"model":"target"}],"x":["model","target"]}',
        '{"model":["target"],"Model":"target","model2":"target","models":"target"}',
        '{"model":"target-2","a":"target"}',
        '[{"model":"target"}]',
        '"target"',
        "",
        'no JSON, but "model":"target"',
    ],
)
def test_the_name_in_any_other_place_is_left_alone(body: str):
    assert plain(body) == body


def test_every_spelling_of_key_and_value_is_found():
    assert plain('{"model" : "target"}') == '{"model" : "alias"}'
    assert plain('{\n"\\u006dodel"\n:\t"t\\u0061rget"\r\n}') == '{\n"\\u006dodel"\n:\t"alias"\r\n}'
    assert plain('{"model":"t\\/1"}', "t/1") == '{"model":"alias"}'


def test_all_of_several_members_are_replaced():
    assert plain('{"model":"target","a":1,"model":"target"}') == '{"model":"alias","a":1,"model":"alias"}'


def test_new_name_is_written_as_json():
    assert json.loads(plain('{"model":"target"}', new='a"\\\n\x01é')) == {"model": 'a"\\\n\x01é'}
    assert json.loads(plain('{"model":"target"}', new="\ud800")) == {"model": "\ud800"}


def test_texts_that_follow_one_another_are_each_rewritten():
    assert plain('{"model":"target"}\n{"model":"target"}\n') == '{"model":"alias"}\n{"model":"alias"}\n'


def test_chunk_in_which_nothing_changes_is_not_copied():
    rewriter = JsonRewriter(CHAT, "target", "alias")
    for chunk in (b'{"id":"x",', b'"choices":[{"text":"some', b' long text"}],', b'"model":"other"}'):
        assert rewriter.feed(chunk, False) is chunk


def test_only_an_unfinished_key_or_name_is_held_back():
    rewriter = JsonRewriter(CHAT, "target", "alias")
    assert rewriter.feed(b'{"id":"cha', False) == b'{"id":"cha'
    assert rewriter.feed(b'tcmpl","mod', False) == b'tcmpl",'
    assert rewriter.feed(b'el": ', False) == b'"model": '
    assert rewriter.feed(b'"tar', False) == b""
    assert rewriter.feed(b'get","choices":[{"text":"on and', False) == b'"alias","choices":[{"text":"on and'
    assert rewriter.feed(b" on", False) == b" on"


def test_broken_off_body_is_sent_to_its_last_byte():
    rewriter = JsonRewriter(CHAT, "target", "alias")
    assert rewriter.feed(b'{"model":"tar', False) + rewriter.feed(b"", True) == b'{"model":"tar'


def test_no_more_is_held_back_than_the_longest_spelling_of_what_is_looked_for():
    old = "t" * MAX_TEXT_BYTES
    rewriter = JsonRewriter(CHAT, old, "alias")
    body = b'{"model":"' + b"\\u0074" * 3000
    held, longest = 0, 0
    for i in range(len(body)):
        held += 1 - len(rewriter.feed(body[i : i + 1], False))
        longest = max(longest, held)
    assert longest == MAX_HELD_BYTES - 1
    assert held == 0
    key = JsonRewriter(CHAT, "target", "alias")
    assert key.feed(b'{"' + b"k" * 30, False) == b"{"
    assert key.feed(b"k", False) == b'"' + b"k" * 31


def test_name_that_is_too_long_to_look_for_is_refused():
    with pytest.raises(ValueError, match="more than 1024 bytes"):
        JsonRewriter(CHAT, "é" * 513, "alias")


# -- event streams ----------------------------------------------------------------------------------------

LINE_ENDS = ["\n", "\r\n", "\r"]


@st.composite
def streams(draw: st.DrawFn) -> Pair:
    """A stream of events whose data are JSON over one or more lines, with comments and fields between."""
    before, after = b"", b""
    for _ in range(draw(st.integers(0, 4))):
        line_end = draw(st.sampled_from(LINE_ENDS)).encode()
        old, new = draw(objects())
        fields = draw(
            st.lists(st.sampled_from([b"event: message", b": model", b"id: 1", b"dat", b"datax:1"]))
        )
        event = [(name, name) for name in fields]
        space = draw(st.sampled_from([b"", b" "]))
        lines = zip(_lines(old), _lines(new), strict=True)
        event += [(b"data:" + space + a, b"data:" + space + b) for a, b in lines]
        for a, b in event:
            before, after = before + a + line_end, after + b + line_end
        before, after = before + line_end, after + line_end
    tail = draw(st.sampled_from([b"", b"data: [DONE]\n\n", b"data: {", b"dat", b": bye"]))
    return before + tail, after + tail


def _lines(text: bytes) -> list[bytes]:
    return text.replace(b"\r\n", b"\n").split(b"\n")


@given(streams(), cuts)
@settings(max_examples=200)
def test_any_stream_in_any_chunks_becomes_what_its_structure_says(stream: Pair, places: list[int]):
    before, after = stream
    assert rewrite(EventStreamRewriter, cut(before, places)) == after


@given(streams())
@settings(max_examples=60)
def test_any_stream_can_come_byte_by_byte(stream: Pair):
    before, after = stream
    assert rewrite(EventStreamRewriter, [before[i : i + 1] for i in range(len(before))]) == after


@given(st.text('data: {}[]"\\,model\r\n', max_size=80).map(str.encode), cuts)
def test_what_is_no_stream_comes_out_the_same_in_any_chunks(data: bytes, places: list[int]):
    assert rewrite(EventStreamRewriter, cut(data, places), "absent") == data
    assert rewrite(EventStreamRewriter, cut(data, places), "m") == rewrite(EventStreamRewriter, [data], "m")


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_each_event_is_rewritten_whatever_ends_its_lines(line_end: str):
    stream = 'event: x\ndata: {"model":"target"}\n\ndata:{"model":"target"}\n\ndata: [DONE]\n\n'
    expected = 'event: x\ndata: {"model":"alias"}\n\ndata:{"model":"alias"}\n\ndata: [DONE]\n\n'
    assert events(stream.replace("\n", line_end)) == expected.replace("\n", line_end)


def test_broken_event_does_not_spoil_the_next():
    assert (
        events('data: {"a":"\n\ndata: {"model":"target"}\n\n')
        == 'data: {"a":"\n\ndata: {"model":"alias"}\n\n'
    )
    assert events('data: {"a\ndata: "model":"target"}\n\n') == 'data: {"a\ndata: "model":"target"}\n\n'


def test_only_data_is_rewritten():
    stream = (
        "".join(f'{name}: {{"model":"target"}}\n' for name in ("model", "", "id", "datum", " data")) + "\n"
    )
    assert events(stream) == stream


def test_second_path_is_rewritten_too():
    event = '{"type":"response.created","response":{"id":"r","model":"%s","output":[{"model":"target"}]}}'
    assert events(f"data: {event % 'target'}\n\n") == f"data: {event % 'alias'}\n\n"


def test_event_in_which_nothing_changes_is_not_copied():
    rewriter = EventStreamRewriter(CHAT, "target", "alias")
    for chunk in (b'data: {"model":"other"}\n\n', b": ping\n\n", b"data: [DONE]\n\n"):
        assert rewriter.feed(chunk, False) is chunk
