"""Streams: what waits, what is sent untouched, and how each API's stream is cut."""

from __future__ import annotations

import json

import pytest

from dataplane.extproc.events import EndBody
from ipp.guardrails import stream
from ipp.guardrails.masking import Vault
from tests.support.guardrail_policies import at_work, policy
from tests.support.guardrail_streams import CHANNELS, data_of, encoded, events, read_stream

MAIL = at_work("mail", r"\w{1,8}@\w{1,8}", 17, kind="email", restores=True)
STOP = at_work("stop", "stop", 4, mode="block", message="No stopping.")


def chunk(delta, index=0, reason=None, **more):
    choice = {"index": index, "delta": delta, "finish_reason": reason}
    return b"data: " + json.dumps({"id": "c", "model": "m", "choices": [choice], **more}).encode() + b"\n\n"


def run(guard, chunks, end=True):
    """What was sent for each chunk; the last is what ended the stream early."""
    sent = []
    for at, piece in enumerate(chunks):
        try:
            sent.append(guard.feed(piece, end and at == len(chunks) - 1))
        except EndBody as ended:
            return [*sent, ended.last]
    return sent


def test_events_go_on_untouched_once_they_are_certain():
    guard = policy(STOP).open_stream("sse")
    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"content": text}) for text in ("ab", "cd", "ef", "g")]
    chunks += [chunk({}, reason="stop"), b"data: [DONE]\n\n"]
    sent = run(guard, chunks)
    assert sent == [chunks[0], b"", b"", chunks[1], b"", b"".join(chunks[2:6]), chunks[6]]
    assert guard.delay == 4


def test_a_find_over_several_events_is_replaced_in_the_first():
    chunks = [chunk({"content": text}) for text in ("to m", "e@", "x, and", " more" * 4)]
    sent = b"".join(run(policy(MAIL).open_stream("sse"), chunks))
    assert [event["choices"][0]["delta"]["content"] for event in data_of(sent)] == [
        "to [EMAIL]",
        "",
        ", and",
        " more" * 4,
    ]


def test_placeholders_alone_hold_nothing_else_back():
    vault = Vault()
    vault.placeholder("email", "me@x")
    guard = policy(at_work("mail", "x", 1, stages=["request"])).open_stream("sse", vault)
    chunks = [chunk({"content": text}) for text in ("Dear ", "<EMA", "IL_1>", "!", " <b>", " <EM", "x")]
    sent = run(guard, chunks)
    assert sent[0] == chunks[0]
    assert sent[1] == b""
    assert [event["choices"][0]["delta"]["content"] for event in data_of(sent[2])] == ["me@x", ""]
    assert sent[3:] == [chunks[3], chunks[4], b"", chunks[5] + chunks[6]]


def test_reasoning_does_not_hold_up_the_content_that_follows():
    guard = policy(MAIL).open_stream("sse")
    chunks = [
        chunk({"reasoning_content": "Let me think about it at length. Done"}),
        chunk({"content": "A" * 10}),
        chunk({"content": "B" * 30}),
        chunk({}, reason="stop"),
    ]
    sent = run(guard, chunks)
    first = data_of(sent[1])
    assert [event["choices"][0]["delta"] for event in first] == [
        {"reasoning_content": "Let me think about i"}
    ]
    assert sent[2] == chunks[1]
    late = data_of(sent[3])
    assert late[0] == json.loads(chunks[2][6:])
    assert late[1]["choices"] == [
        {
            "index": 0,
            "delta": {"reasoning_content": "t at length. Done"},
            "logprobs": None,
            "finish_reason": None,
        }
    ]
    assert late[2] == json.loads(chunks[3][6:])


def test_comments_and_pings_do_not_wait():
    guard = policy(MAIL).open_stream("sse")
    chunks = [chunk({"content": "abc"}), b": ping\n\n", b'event: ping\ndata: {"type":"ping"}\n\n']
    assert run(guard, chunks, end=False) == [b"", chunks[1], chunks[2]]


def test_usage_passes_and_is_known():
    guard = policy(MAIL).open_stream("sse")
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    chunks = [chunk({"content": "a@b"}, usage=None), b"data: [DONE]\n\n"]
    told = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
    sent = run(guard, [chunks[0], told, chunks[1]])
    assert told + chunks[1] in b"".join(sent)
    assert guard.usage == usage


def test_logprobs_of_a_changed_event_go_away():
    def event(text, logprobs):
        choice = {"index": 0, "delta": {"content": text}, "logprobs": logprobs}
        return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

    said = {"content": [{"token": "a@b", "bytes": [97]}]}
    sent = run(policy(MAIL).open_stream("sse"), [event("a@b ", said) + event("c" * 30, said)])
    assert sent == [event("[EMAIL] ", None) + event("c" * 30, said)]


@pytest.mark.parametrize("api", list(CHANNELS))
def test_a_cut_stream_ends_like_its_api_ends(api):
    channel = next(channel for channel in CHANNELS[api] if channel.startswith("content"))
    told = []
    guard = policy(STOP).open_stream("sse", told=told.extend)
    data = events(api, [(channel, "go "), (channel, "on st"), (channel, "op it")])
    chunks = encoded(data, "\n", ascii_only=True)
    sent = run(guard, chunks)
    assert read_stream(api, b"".join(sent)) == {channel: "go on "}
    last = data_of(sent[-1])
    if api in ("chat", "completions"):
        assert [choice["finish_reason"] for choice in last[-3]["choices"]] == ["content_filter"]
        assert (last[-3]["id"], last[-3]["object"]) == ("c", data[0]["object"])
        assert last[-2:] == [
            {
                "error": {
                    "message": "No stopping.",
                    "type": "invalid_request_error",
                    "param": last[-2]["error"]["param"],
                    "code": "guardrail_patterns",
                }
            },
            "[DONE]",
        ]
    if api == "anthropic":
        assert [event["type"] for event in last[-4:]] == [
            "content_block_stop",
            "message_delta",
            "error",
            "message_stop",
        ]
        assert last[-3]["delta"]["stop_reason"] == "refusal"
        assert last[-2]["error"]["code"] == "guardrail_patterns"
        assert b"event: message_stop\n" in sent[-1]
    if api == "responses":
        assert last[-3]["response"]["incomplete_details"] == {"reason": "content_filter"}
        assert (last[-3]["type"], last[-2]["type"], last[-1]) == ("response.incomplete", "error", "[DONE]")
        assert last[-2]["code"] == "guardrail_patterns"
    if api == "gemini":
        assert last[-2] == {"candidates": [{"index": 0, "finishReason": "SAFETY"}]}
        assert last[-1]["error"]["message"] == "No stopping."
    assert [(verdict.rule, verdict.start, verdict.end) for verdict in told] == [("stop", 6, 10)]


@pytest.mark.parametrize(
    ("data", "ending"),
    [
        (
            {"type": "message_start", "message": {"content": [{"type": "text", "text": "stop"}]}},
            (b"event: error\ndata: ", {"type": "error"}),
        ),
        (
            {"type": "response.created", "response": {"instructions": "stop"}},
            (b"event: error\ndata: ", {"type": "error", "code": "guardrail_patterns", "sequence_number": 0}),
        ),
        ({"choices": [{"delta": {"content": 1, "x": "stop"}}], "y": "stop"}, (b"data: ", {})),
    ],
)
def test_a_stream_of_which_nothing_was_sent_ends_in_an_error_of_its_api(data, ending):
    [sent] = run(policy(STOP).open_stream("sse"), [b"data: " + json.dumps(data).encode() + b"\n\n"])
    begin, said = ending
    assert sent.startswith(begin)
    [error, *_] = data_of(sent)
    assert error.items() >= said.items()
    assert "guardrail_patterns" in json.dumps(error)


def test_texts_that_go_on_side_by_side_and_what_tells_their_type_stay_as_they_came():
    chunks = [
        chunk(
            {
                "reasoning": word,
                "reasoning_details": [{"type": "reasoning.text", "text": word, "format": "x-1"}],
                "steps": [{"type": "unheard.of", "id": "s-1", "a": word, "b": word}],
            }
        )
        for word in ("one ", "two ", "three ", "four ", "five")
    ]
    chunks += [chunk({}, reason="stop"), b"data: [DONE]\n\n"]
    guard = policy(at_work("mail", r"\w+@\w+", 8)).open_stream("sse")
    assert b"".join(run(guard, chunks)) == b"".join(chunks)


def test_what_is_masked_in_an_object_nobody_knows_leaves_its_type_alone():
    chunks = [chunk({"steps": [{"type": "unheard.of", "a": word}]}) for word in ("to m", "e@", "x")]
    sent = data_of(b"".join(run(policy(MAIL).open_stream("sse"), chunks)))
    steps = [event["choices"][0]["delta"]["steps"][0] for event in sent]
    assert "".join(step["a"] for step in steps) == "to [EMAIL]"
    assert {step["type"] for step in steps} == {"unheard.of"}


def test_every_choice_that_goes_on_is_ended():
    chunks = [chunk({"content": "a" * 9}, index) for index in (0, 1, 2)]
    chunks += [chunk({}, 1, "stop"), chunk({"content": "stop"}, 0)]
    last = data_of(run(policy(STOP).open_stream("sse"), chunks)[-1])
    assert [choice["index"] for choice in last[-3]["choices"]] == [0, 2]


def test_texts_of_no_known_api_go_on_where_the_next_event_has_one_in_the_same_place():
    chunks = [b'data: {"say":["to a@"]}\n\n', b"data: plain a\n\n", b'data: {"say":["b ok"],"tokens":5}\n\n']
    chunks += [b"data: @b\ndata: text\n\n", b"data: [DONE]\n\n"]
    assert b"".join(run(policy(MAIL, STOP).open_stream("sse"), chunks)) == (
        b'data: {"say":["to [EMAIL]"]}\n\ndata: plain [EMAIL]\n\ndata: {"say":[" ok"],"tokens":5}\n\n'
        b"data: \ndata: text\n\ndata: [DONE]\n\n"
    )


@pytest.mark.parametrize(
    "chunks",
    [
        [b'data: {"say":["st"]}\n\n', b'data: {"say":["op"]}\n\n'],
        [b'data: {"say":"st"}\n\n', b'data: {"say":"sto"}\n\n', b'data: {"say":"stop"}\n\n'],
        [b'data: "st"\n\n', b'data: "op"\n\n'],
        [b"data: st\n\n", b"data: op\n\n"],
        [b"data: [1, st\n\n", b"data:op\n\n"],
        [b": stop\n\n"],
        [b"id: stop\ndata: {}\n\n"],
        [b"Data: stop\n\n"],
        [b'{"error":"stop"}'],
    ],
)
def test_a_stream_of_no_known_api_is_cut_by_an_error_alone(chunks):
    chunks = [*chunks, b"data: [DONE]\n\n"]
    sent = b"".join(run(policy(STOP).open_stream("sse"), chunks))
    before, _, end = sent.partition(b'data: {"error":{"message":"No stopping."')
    assert b"op" not in before
    assert end.endswith(b'"code":"guardrail_patterns"}}\n\ndata: [DONE]\n\n')


def test_a_text_that_is_repeated_and_longer_each_time_is_masked_in_each_event():
    chunks = [b'data: {"text":"%b"}\n\n' % text for text in (b"a@b", b"a@b is", b"a@b is it")]
    sent = b"".join(run(policy(MAIL).open_stream("sse"), [*chunks, b"data: [DONE]\n\n"]))
    assert [value["text"] for value in data_of(sent)[:-1]] == ["[EMAIL]", "[EMAIL] is", "[EMAIL] is it"]


@pytest.mark.parametrize("rule", [STOP, MAIL])
@pytest.mark.parametrize("reason", ["stop", ""])
def test_a_text_that_goes_on_behind_its_end_is_looked_at_with_what_it_said_before(rule, reason):
    said = ("all st", "op it") if rule is STOP else ("to a@", "b now")
    chunks = [*(chunk({"content": text}, reason=reason) for text in said), b"data: [DONE]\n\n"]
    sent = b"".join(run(policy(rule).open_stream("sse"), chunks))
    assert said[1].encode() not in sent
    if rule is MAIL and not reason:
        assert [event["choices"][0]["delta"]["content"] for event in data_of(sent)[:-1]] == [
            "to [EMAIL]",
            " now",
        ]
    else:
        assert data_of(sent)[-2]["error"]["code"] == (
            "guardrail_pii" if rule is MAIL else "guardrail_patterns"
        )


def test_what_is_found_before_an_end_is_no_news_behind_it():
    told = []
    flag = at_work("flag", "cat", 3, mode="flag")
    guard = policy(flag, MAIL).open_stream("sse", told=told.extend)
    chunks = [chunk({"content": "a@b cat"}, reason="stop"), chunk({"content": "s cat"}, reason="stop")]
    sent = b"".join(run(guard, chunks))
    assert [event["choices"][0]["delta"]["content"] for event in data_of(sent)] == ["[EMAIL] cat", "s cat"]
    assert [verdict.rule for verdict in told] == ["mail", "flag", "flag"]


def test_what_is_to_be_masked_beside_the_data_is_left_out():
    chunks = [b": to a@b\n\n", b"id: a@b\ndata: {}\n\n", b": ping\n\n"]
    assert run(policy(MAIL).open_stream("sse"), chunks) == [b"", b"data: {}\n\n", b": ping\n\n"]


def test_what_is_left_of_a_text_of_no_known_api_says_nothing_else_again():
    chunks = [b'data: {"a":["a@b"],"b":"x a"}\n\n', b'data: {"c":"%b"}\n\n' % (b"-" * stream.PATIENCE * 9)]
    sent = b"".join(run(policy(MAIL).open_stream("sse"), chunks))
    assert b"a@b" not in sent


def test_an_event_of_too_many_texts_ends_the_stream_before_it_is_looked_at():
    said = b"data: {%b}\n\n" % b",".join(b'"k%d":"x"' % at for at in range(stream.MAX_EVENT_TEXTS + 1))
    (last,) = run(policy(STOP).open_stream("sse"), [said])
    assert data_of(last)[0]["error"]["code"] == "guardrail_unreadable"


def test_data_over_several_lines_and_other_fields_are_kept():
    event = b'id: 7\r\ndata: {"choices":[{\r\ndata:"delta":{"content":"a@b"}}]}\r\nretry: 1\r\n\r\n'
    sent = run(policy(MAIL).open_stream("sse"), [event])
    assert sent == [
        b'id: 7\r\ndata: {"choices":[{\r\ndata: "delta":{"content":"[EMAIL]"}}]}\r\nretry: 1\r\n\r\n'
    ]


def test_half_an_event_at_the_end_of_a_broken_body_is_not_sent():
    guard = policy(STOP).open_stream("sse")
    first = chunk({"content": "good st"})
    assert run(guard, [first, chunk({"content": "op it"})[:-12]]) == [b"", first]


def test_an_event_without_its_empty_line_at_the_end_is_one():
    last = chunk({"content": "a@b"})[:-2]
    assert run(policy(MAIL).open_stream("sse"), [last]) == [last.replace(b"a@b", b"[EMAIL]")]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'data: {"a":' + b"[" * 70 + b"]" * 70 + b"}\n\n", "is nested deeper than 64 levels"),
        (b"data: " + b"[" * 10_000 + b"\n\n", "is nested deeper than 64 levels"),
    ],
)
def test_events_that_cannot_be_looked_into_end_the_stream(raw, reason):
    sent = run(policy(STOP).open_stream("sse"), [raw])
    assert data_of(sent[0])[0]["error"]["message"] == (
        f"The answer's body {reason}, and guardrails could not look into it."
    )


def test_an_event_that_does_not_end_ends_the_stream(monkeypatch):
    monkeypatch.setattr(stream, "MAX_EVENT_BYTES", 100)
    guard = policy(STOP).open_stream("sse")
    assert guard.feed(b"data: " + b"x" * 94, False) == b""
    with pytest.raises(EndBody):
        guard.feed(b"x", False)


def test_more_texts_at_a_time_than_can_be_followed_end_the_stream(monkeypatch):
    monkeypatch.setattr(stream, "MAX_CHANNELS", 2)
    guard = policy(STOP).open_stream("sse")
    sent = run(guard, [chunk({"content": "abcde"}, index) for index in range(3)], end=False)
    assert b"guardrail_unreadable" in sent[2]


def test_one_choice_that_is_silent_holds_up_the_others_for_a_while_only():
    guard = policy(STOP).open_stream("sse")
    sent = run(
        guard, [chunk({"content": "a"}), *(chunk({"content": "b" * 50}, 1) for _ in range(20))], end=False
    )
    most = 0
    for at in range(1, len(sent)):
        out = read_stream("chat", b"".join(sent[: at + 1])).get("content 1", "")
        most = max(most, at * 50 - len(out))
    assert most <= 2 * stream.PATIENCE + 50 + guard.delay


def test_a_queue_of_many_bytes_is_sent(monkeypatch):
    monkeypatch.setattr(stream, "MAX_QUEUED_BYTES", 500)
    guard = policy(STOP).open_stream("sse")
    chunks = [chunk({"content": "ab"}), *(chunk({}, 0, pad="x" * 100) for _ in range(5))]
    assert read_stream("chat", b"".join(run(guard, chunks, end=False))) == {}
    assert read_stream("chat", guard.feed(b"data: [DONE]\n\n", True)) == {"content 0": "ab"}
