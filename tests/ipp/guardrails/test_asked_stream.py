"""Streams of which somebody else judges: window by window, and nothing is sent on without its verdict."""

from __future__ import annotations

import asyncio
import json

import pytest

from dataplane.config.guardrails import Rule
from dataplane.extproc.events import EndBody, LaterBody
from ipp.guardrails.asked_stream import MAX_HELD_BYTES, OVERLAP, WINDOW
from ipp.guardrails.at_work import RuleAtWork
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.masking import Vault
from ipp.guardrails.verdicts import Refusal, Verdict
from tests.ipp.guardrails.test_asking import asker, server, webhook
from tests.support.guardrail_policies import at_work
from tests.support.guardrail_streams import data_of

DONE = b"data: [DONE]\n\n"
REFUSED = Refusal("guardrail_webhook", "No.")
RULE = Rule(name="hook", type="webhook", stages=["stream"])


class Somebody:
    """Keeps questions until a test answers them."""

    is_closed = True

    def __init__(self):
        self.questions = []

    def ask_about(self, rules, stage, texts, take):
        assert (len(rules), stage) == (1, "stream")
        self.questions.append((list(texts), take))

    def answer(self, refusal=None, verdicts=()):
        _, take = self.questions[-1]
        take(verdicts, refusal)

    @property
    def texts(self):
        return [texts for texts, _ in self.questions]


class Stream:
    """A stream that is fed, and what a client has got of it."""

    def __init__(self, *rules, vault=None, duplex=True):
        self.somebody = Somebody()
        self.told = []
        policy = CompiledPolicy([*rules, RuleAtWork("policy", RULE, asked=self.somebody)])
        self.guard = policy.open_stream("sse", vault, self.told.extend)
        self.got = b""
        self.ended = False
        if duplex:
            self.guard.attach(self.push)

    def push(self, body, end):
        assert not self.ended
        self.got += body
        self.ended |= end

    def feed(self, *chunks, end=False):
        for at, chunk in enumerate(chunks):
            try:
                self.got += self.guard.feed(chunk, end and at == len(chunks) - 1)
            except EndBody as cut:
                self.push(cut.last, True)
                return
            except LaterBody as later:
                later.start(lambda rest: self.push(rest, True))
                return
        self.ended |= end


def event(text, **more):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **more}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


def test_what_says_nothing_is_sent_on_at_once_and_a_short_stream_is_asked_about_at_its_end():
    stream = Stream()
    first = event("", delta={"role": "assistant", "content": ""})
    stream.feed(first, b": ping\n\n", event("hello "), event("you"))
    assert (stream.got, stream.somebody.questions) == (first + b": ping\n\n", [])
    stream.feed(DONE, end=True)
    assert stream.somebody.texts == [[("choices[0].delta.content", "hello you")]]
    assert not stream.ended
    stream.somebody.answer()
    assert stream.got == first + b": ping\n\n" + event("hello ") + event("you") + DONE
    assert stream.ended


def test_windows_overlap_and_one_is_asked_about_while_the_next_one_fills():
    stream = Stream()
    events = [event("a" * WINDOW), event("b" * 10), event("c" * WINDOW), event("d" * 5), DONE]
    stream.feed(*events[:3])
    assert len(stream.somebody.questions) == 1
    assert stream.got == b""
    stream.somebody.answer()
    assert stream.got == events[0]
    (_, text) = stream.somebody.texts[1][0]
    assert text == "a" * OVERLAP + "b" * 10 + "c" * WINDOW
    stream.feed(*events[3:], end=True)
    stream.somebody.answer()
    assert (stream.got, stream.ended) == (b"".join(events[:3]), False)
    (_, text) = stream.somebody.texts[2][0]
    assert text == "c" * OVERLAP + "d" * 5
    stream.somebody.answer()
    assert (stream.got, stream.ended) == (b"".join(events), True)


def test_what_is_refused_ends_the_stream_at_once_and_nothing_of_it_is_sent():
    stream = Stream()
    good, bad = event("a" * WINDOW), event("bad" * WINDOW)
    stream.feed(good, bad)
    stream.somebody.answer()
    verdict = Verdict(policy="p", rule="hook", type="webhook", kind="verdict", stage="stream", action="block")
    stream.somebody.answer(REFUSED, [verdict])
    assert stream.ended
    assert stream.got.startswith(good)
    assert b"bad" not in stream.got
    last = data_of(stream.got)[-3:]
    assert last[0]["choices"][0]["finish_reason"] == "content_filter"
    assert (last[1]["error"]["code"], last[2]) == ("guardrail_webhook", "[DONE]")
    assert stream.told == [verdict]


def test_a_refusal_at_the_end_cuts_as_well():
    stream = Stream()
    stream.feed(event("short"), DONE, end=True)
    stream.somebody.answer(REFUSED)
    assert stream.ended
    assert b"short" not in stream.got
    told, done = data_of(stream.got)
    assert (told["error"]["code"], done) == ("guardrail_webhook", "[DONE]")


def test_elsewhere_windows_are_sent_on_with_the_chunks_that_follow():
    stream = Stream(duplex=False)
    good, bad = event("a" * WINDOW), event("bad" * WINDOW)
    stream.feed(good, bad)
    stream.somebody.answer()
    assert stream.got == b""
    stream.feed(b": ping\n\n")
    assert stream.got == good
    stream.somebody.answer(REFUSED)
    stream.feed(event("more"))
    assert stream.ended
    assert b"bad" not in stream.got
    assert b"more" not in stream.got


def test_rules_come_first_and_what_they_cut_is_asked_about_before_it_is_sent():
    stop = at_work("stop", "stop", 4, mode="block", stages=["stream"])
    mail = at_work("mail", r"\w@\w", 3, stages=["stream"])
    stream = Stream(stop, mail)
    stream.feed(event("to a@b, "), event("then stop now"))
    assert not stream.ended
    assert stream.somebody.texts[0][0] == ("choices[0].delta.content", "to ***, ")
    stream.somebody.answer()
    assert stream.ended
    assert b"guardrail_patterns" in stream.got
    refused = Stream(stop)
    refused.feed(event("to me, "), event("then stop now"))
    refused.somebody.answer(REFUSED)
    assert b"to me" not in refused.got


def test_nobody_is_shown_what_placeholders_stand_for_and_the_caller_gets_it_back():
    vault = Vault()
    name = vault.placeholder("email", "ada@example.org")
    for rules in ((), (at_work("words", "EMAIL", 5, stages=["stream"]),)):
        stream = Stream(*rules, vault=vault)
        stream.feed(event(f"to {name[:4]}"), event(f"{name[4:]} now"), DONE, end=True)
        assert "".join(text for _, text in stream.somebody.texts[0]) == f"to {name} now"
        stream.somebody.answer()
        said = [each["choices"][0]["delta"]["content"] for each in data_of(stream.got)[:-1]]
        assert "".join(said) == "to ada@example.org now"
        assert stream.ended


def test_texts_that_go_on_side_by_side_are_asked_about_together():
    stream = Stream()
    call = {"tool_calls": [{"index": 0, "function": {"arguments": '{"q":'}}]}
    stream.feed(event("a"), event("", delta=call), event("b"), b"data: bare\n\n", DONE, end=True)
    assert [text for _, text in stream.somebody.texts[0]] == ["ab", '{"q":', "bare"]


def test_too_much_that_waits_ends_the_stream():
    stream = Stream()
    stream.feed(event("a" * WINDOW))
    for _ in range(9):
        if not stream.ended:
            stream.feed(event("b" * (MAX_HELD_BYTES // 8)))
    assert stream.ended
    assert b"aaa" not in stream.got
    assert data_of(stream.got)[-2]["error"]["code"] == "guardrail_unreadable"
    stream.somebody.answer()
    assert b"aaa" not in stream.got


async def test_a_stream_that_is_held_back_anyway_is_asked_about_once():
    whole = at_work("whole", "never", None, mode="block", stages=["response"])._replace(holds=True)
    async with server(lambda question: {"flagged": True}) as (url, questions), asker() as asking:
        rule = webhook(asking, url)._replace(rule=RULE)
        guard = CompiledPolicy([whole, rule]).open_stream("sse")
        with pytest.raises(LaterBody) as later:
            guard.feed(event("a" * WINDOW) + event("b" * WINDOW) + DONE, True)
        taken: asyncio.Queue[bytes] = asyncio.Queue()
        later.value.start(taken.put_nowait)
        got = await asyncio.wait_for(taken.get(), 20)
    assert [len(text["text"]) for _, question in questions for text in question["texts"]] == [2 * WINDOW]
    assert b"aaa" not in got
    assert data_of(got)[-2]["error"]["code"] == "guardrail_webhook"


@pytest.mark.parametrize(
    ("said", "code"),
    [({"flagged": True}, "guardrail_webhook"), ({}, "guardrail_unavailable"), ({"flagged": False}, "")],
)
async def test_a_webhook_judges_streams(said, code):
    async with server(lambda question: said) as (url, questions), asker() as asking:
        rule = webhook(asking, url)
        rule = rule._replace(rule=Rule(name="hook", type="webhook", stages=["stream"]))
        guard = CompiledPolicy([rule]).open_stream("sse")
        with pytest.raises(LaterBody) as later:
            guard.feed(event("hello") + DONE, True)
        taken: asyncio.Queue[bytes] = asyncio.Queue()
        later.value.start(taken.put_nowait)
        got = await asyncio.wait_for(taken.get(), 20)
        assert questions[0][1]["stage"] == "stream"
        assert questions[0][1]["texts"] == [{"path": "choices[0].delta.content", "text": "hello"}]
        if code:
            assert b"hello" not in got
            assert data_of(got)[-2]["error"]["code"] == code
        else:
            assert got == event("hello") + DONE
