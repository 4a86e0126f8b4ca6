"""Streams that are held back until they are whole, and judged as whole answers are."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.errors import ConfigError
from dataplane.extproc.events import BodyTransform, LaterBody
from ipp.guardrails.asking import Asking
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.held import whole_answer
from ipp.guardrails.policies import Policies
from ipp.guardrails.trial import Trial, run_trial
from ipp.guardrails.verdicts import Verdict
from tests.support.guardrail_streams import data_of, encoded, events, read_stream

TRAINS = {
    "name": "trains",
    "type": "topics",
    "stages": ["response"],
    "parameters": {"allowed": [{"name": "trains", "words": ["train", "rail"]}]},
}
WORDS = {"name": "words", "type": "keywords", "stages": ["stream"], "parameters": {"words": ["zebra"]}}
MAIL = {
    "name": "mail",
    "type": "pii",
    "mode": "mask",
    "stages": ["request", "stream"],
    "parameters": {"entities": ["email"]},
}
SAID = {
    "chat": "content 0",
    "completions": "content 0",
    "anthropic": "content 1",
    "responses": "content 0",
    "gemini": "content 0",
}
ON = "The night train leaves by rail at nine."
OFF = "A recipe for soup with a great many onions."


def compiled(*rules: dict[str, Any], asking: Asking | None = None, streams: str = "hold") -> CompiledPolicy:
    spec = msgspec.convert({"rules": list(rules), "streams": streams}, GuardrailPolicySpec)
    found = Policies([("p", spec)], asking).select("", "", "")
    assert found is not None
    return found


def stream_of(api: str, text: str) -> list[bytes]:
    """The events that say it, a word at a time."""
    words = [word + " " for word in text.split(" ")]
    words[-1] = words[-1].rstrip()
    return encoded(events(api, [(SAID[api], word) for word in words]), "\n", ascii_only=True)


def fed(transform: BodyTransform, chunks: list[bytes]) -> list[bytes]:
    return [transform.feed(chunk, at == len(chunks)) for at, chunk in enumerate(chunks, 1)]


@pytest.mark.parametrize("api", SAID)
def test_nothing_is_sent_before_the_end_and_then_every_byte(api: str) -> None:
    transform = compiled(TRAINS).open_stream("sse")
    assert transform is not None
    came = stream_of(api, ON)
    sent = fed(transform, came)
    assert sent[:-1] == [b""] * (len(came) - 1)
    assert sent[-1] == b"".join(came)


@pytest.mark.parametrize("api", SAID)
def test_a_stream_that_is_refused_says_nothing_and_ends_like_its_api(api: str) -> None:
    verdicts: list[Verdict] = []
    transform = compiled(TRAINS).open_stream("sse", None, verdicts.extend)
    assert transform is not None
    whole = b"".join(stream_of(api, OFF))
    chunks = [whole[at : at + 9] for at in range(0, len(whole), 9)]
    sent = b"".join(fed(transform, chunks))
    assert "".join(read_stream(api, sent).values()) == ""
    assert b"onions" not in sent
    told = [each for each in data_of(sent) if isinstance(each, dict)]
    errors = [each.get("error") or each for each in told if "error" in each or each.get("type") == "error"]
    assert [error["message"] for error in errors] == ["The answer is against the guardrail 'trains'."]
    ends = {
        "chat": b'"finish_reason":"content_filter"',
        "completions": b'"finish_reason":"content_filter"',
        "anthropic": b'"stop_reason":"refusal"',
        "responses": b'"reason":"content_filter"',
        "gemini": b'"finishReason":"SAFETY"',
    }
    assert ends[api] in sent.replace(b" ", b"")
    assert [(each.rule, each.stage, each.kind, each.action) for each in verdicts] == [
        ("trains", "response", "offTopic", "block")
    ]


def test_without_holding_a_stream_passes_as_it_comes() -> None:
    assert compiled(TRAINS, streams="window").open_stream("sse") is None
    transform = compiled(TRAINS, WORDS, streams="window").open_stream("sse")
    assert transform is not None
    came = stream_of("chat", OFF)
    sent = fed(transform, came)
    assert b"".join(sent) == b"".join(came)
    assert any(sent[:-1])


def test_rules_for_streams_mask_and_restore_what_is_held() -> None:
    policy = compiled(TRAINS, MAIL)
    request = {"messages": [{"role": "user", "content": "I am ada@example.org"}]}
    vault = policy.check_request(json.dumps(request).encode()).vault
    transform = policy.open_stream("sse", vault)
    assert transform is not None
    sent = b"".join(fed(transform, stream_of("chat", "<EMAIL_1> and bob@example.org take the train")))
    assert read_stream("chat", sent)["content 0"] == "ada@example.org and [EMAIL] take the train"


def test_a_schema_of_the_request_holds_for_streams_too() -> None:
    rule = {"name": "s", "type": "jsonSchema", "stages": ["response"], "parameters": {"fromRequest": True}}
    policy = compiled(rule)
    request = {"messages": [], "response_format": {"type": "json_object"}}
    vault = policy.check_request(json.dumps(request).encode()).vault
    for text, is_refused in (('{"a": 1}', False), ("Sure! {}", True)):
        transform = policy.open_stream("sse", vault)
        assert transform is not None
        sent = b"".join(fed(transform, stream_of("chat", text)))
        assert (b"content_filter" in sent) == is_refused
    transform = policy.open_stream("sse", None)
    assert transform is not None
    assert b"".join(fed(transform, stream_of("chat", "prose"))) == b"".join(stream_of("chat", "prose"))


async def test_those_who_are_asked_judge_what_is_held_and_see_nothing_that_is_masked() -> None:
    asked: list[Any] = []

    async def judge(request: web.Request) -> web.Response:
        question = await request.json()
        asked.append(question["texts"])
        return web.json_response({"flagged": "soup" in json.dumps(question)})

    app = web.Application()
    app.router.add_post("/", judge)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    asking = Asking(lambda pool: None)
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        hook = {"name": "h", "type": "webhook", "stages": ["response"]}
        hook["parameters"] = {"url": f"http://127.0.0.1:{runner.addresses[0][1]}/", "timeout": "20s"}
        policy = compiled(hook, MAIL, asking=asking)
        found = []
        for text in ("ask bob@example.org for bread", "ask bob@example.org for soup"):
            transform = policy.open_stream("sse")
            assert transform is not None
            with pytest.raises(LaterBody) as later:
                fed(transform, stream_of("chat", text))
            taken: asyncio.Queue[bytes] = asyncio.Queue()
            later.value.start(taken.put_nowait)
            found.append(await asyncio.wait_for(taken.get(), 20))
        assert read_stream("chat", found[0])["content 0"] == "ask [EMAIL] for bread"
        assert (b"soup" in found[1], b"content_filter" in found[1]) == (False, True)
        assert asked == [
            [{"path": "choices[0].message.content", "text": f"ask [EMAIL] for {what}"}]
            for what in ("bread", "soup")
        ]
    finally:
        await asking.close()
        await runner.cleanup()


def test_what_is_put_together_is_what_clients_put_together() -> None:
    pieces = [
        ("reasoning 0", "hm"),
        ("content 0", "one "),
        ("args 0", '{"a":'),
        ("content 1", "two"),
        ("content 0", "more"),
        ("args 0", " 1}"),
    ]
    answer = json.loads(whole_answer(b"".join(encoded(events("chat", pieces), "\n", ascii_only=True))))
    said = [choice["message"] for choice in answer["choices"]]
    assert [each["content"] for each in said if each["content"]] == ["one more", "two"]
    assert [each["reasoning_content"] for each in said if "reasoning_content" in each] == ["hm"]
    assert [each["tool_calls"][0]["function"]["arguments"] for each in said if "tool_calls" in each] == [
        '{"a": 1}'
    ]
    assert json.loads(whole_answer(b"data: plain\n\n"))["choices"][0]["message"]["content"] == "plain"
    assert json.loads(whole_answer(b": ping\n\ndata: [DONE]\n\n"))["choices"] == []


def test_any_bytes_are_judged_and_none_makes_it_fail() -> None:
    rng = random.Random(4)
    policy = compiled(TRAINS)
    whole = b"".join(stream_of("chat", ON))
    for _ in range(200):
        broken = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        transform = policy.open_stream("sse")
        assert transform is not None
        sent = transform.feed(bytes(broken), True)
        assert sent == bytes(broken) or b"content_filter" in sent or b"error" in sent


def test_an_event_that_nobody_can_look_into_ends_the_stream() -> None:
    transform = compiled(TRAINS).open_stream("sse")
    assert transform is not None
    deep = b'data: {"choices": [{"index": 0, "delta": {"content": ' + b"[" * 500 + b"]" * 500 + b"}}]}\n\n"
    sent = transform.feed(b"".join(stream_of("chat", ON)[:2]) + deep, True)
    assert b"guardrail_unreadable" in sent
    assert sent.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([WORDS], "holds streams for nothing: no rule is for whole answers alone"),
        (
            [{**MAIL, "stages": ["response"]}],
            "cannot mask streams that are held; add stage stream, or choose another mode",
        ),
    ],
)
def test_holding_that_does_nothing_or_cannot_be_done_is_refused(
    rules: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises((ConfigError, msgspec.ValidationError), match=said):
        compiled(*rules)


def test_a_trial_holds_streams_like_a_processor() -> None:
    spec = msgspec.convert({"rules": [TRAINS], "streams": "hold"}, GuardrailPolicySpec)
    off = run_trial([("p", spec)], Trial(text=OFF, stage="stream"))
    assert (off.action, off.code, off.text) == ("block", "guardrail_topics", "")
    on = run_trial([("p", spec)], Trial(text=ON, stage="stream"))
    assert (on.action, on.text) == ("pass", ON)
