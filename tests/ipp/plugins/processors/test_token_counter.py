"""``token-counter``: limits on prompts go by the model's own tokenizer, where a server counts."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import msgspec
import pytest

from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.config.problems import ConfigErrors
from dataplane.errors import RequestError
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import HttpRequest
from dataplane.headers import Headers
from ipp.guardrails.policies import Policies
from ipp.policies import PolicyHolder
from tests.support.processors import Rig, one_profile, pipeline_of
from tests.support.rendering import rendering

TYPE = "token-counter"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def holder(limit: int, model: str = "*") -> PolicyHolder:
    rule = {"name": "length", "type": "maxInputTokens", "parameters": {"tokens": limit}}
    spec = msgspec.convert({"models": [model], "rules": [rule]}, GuardrailPolicySpec)
    found = PolicyHolder(random.Random(1))
    found.put(Policies([("p", spec)]), ["p"], "1")
    return found


def rig_of(url: str, limit: int, model: str = "*", **parameters: Any) -> Rig:
    counter = {"type": TYPE, "parameters": {"url": url, **parameters}}
    return Rig(one_profile([counter, {"type": "guardrails"}]), holder(limit, model))


async def outcome(rig: Rig, body: Any, path: str = "/v1/chat/completions") -> str:
    """``pass``, or the code of the refusal."""
    settled: asyncio.Queue[Any] = asyncio.Queue()
    headers = Headers.of([(":method", "POST"), (":path", path)])
    request = HttpRequest(headers, json.dumps(body).encode(), None)
    try:
        found = rig.handler.open().on_request(request, settled.put_nowait)
    except RequestError as error:
        return error.client_code or ""
    if found is None:
        found = await asyncio.wait_for(settled.get(), 20)
    if isinstance(found, RequestError):
        return found.client_code or ""
    assert isinstance(found, Proceed)
    return "pass"


def counts(rig: Rig) -> list[float]:
    name = "pointsman_ipp_token_counts_total"
    return [rig.counted(name, outcome=outcome) for outcome in ("counted", "failed", "skipped")]


@pytest.mark.parametrize(
    ("path", "body", "asked"),
    [
        ("/v1/chat/completions?x=1", CHAT, "/v1/chat/completions/render"),
        ("/v1/completions", {"model": "m", "prompt": "hi"}, "/v1/completions/render"),
        ("/v1/messages", CHAT | {"max_tokens": 5}, "/v1/messages/render"),
        ("/openai/v1/responses/", {"model": "m", "input": "hi"}, "/v1/responses/render"),
    ],
)
async def test_every_api_that_the_server_renders_is_counted(
    path: str, body: dict[str, Any], asked: str
) -> None:
    async with rendering() as server:
        rig = rig_of(server.url, 500)
        try:
            assert await outcome(rig, body, path) == "pass"
            server.tokens = 501
            assert await outcome(rig, body, path) == "guardrail_max_input_tokens"
            assert server.asked == [(asked, body)] * 2
            assert counts(rig) == [2, 0, 0]
        finally:
            await rig.pipeline.close()


async def test_nothing_is_asked_that_nobody_needs_to_know() -> None:
    async with rendering() as server:
        rig = rig_of(server.url, 1, model="other")
        try:
            assert await outcome(rig, CHAT) == "pass"
            assert (
                await outcome(rig_of(server.url, 9), {"input": "x", "model": "m"}, "/v1/embeddings") == "pass"
            )
            assert server.asked == []
            assert counts(rig) == [0, 0, 0]
        finally:
            await rig.pipeline.close()


async def test_what_the_server_does_not_say_is_estimated() -> None:
    async with rendering() as server:
        rig = rig_of(server.url, 100, timeout="200ms")
        long = {"model": "m", "messages": [{"role": "user", "content": "word " * 200}]}
        try:
            server.status = 400
            assert [await outcome(rig, body) for body in (CHAT, long)] == [
                "pass",
                "guardrail_max_input_tokens",
            ]
            server.status, server.hangs = 200, True
            assert await outcome(rig, CHAT) == "pass"
            state: Any = rig.pipeline.instances[TYPE]
            assert state.dump_state()["lastFailure"] == "/v1/chat/completions/render: no answer within 0.2 s"
            assert counts(rig) == [0, 3, 0]
            assert await outcome(rig, {"model": "m", "input": "x"}, "/v1/embeddings") == "pass"
            assert counts(rig) == [0, 3, 1]
        finally:
            server.hangs = False
            await rig.pipeline.close()


async def test_the_server_is_asked_for_another_model_when_one_is_named() -> None:
    async with rendering() as server:
        rig = rig_of(server.url, 500, modelName="base")
        try:
            assert await outcome(rig, CHAT) == "pass"
            assert server.asked == [("/v1/chat/completions/render", CHAT | {"model": "base"})]
        finally:
            await rig.pipeline.close()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "url: is required"),
        ({"url": "render:8000"}, "url: is no address of a server; write http://host:port"),
        ({"url": "http://h:x"}, "url: is no address of a server; write http://host:port"),
        ({"url": "http://h", "timeout": "2m"}, "timeout: must be from 1ms to 1m"),
    ],
)
def test_an_address_that_is_none_is_refused(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        pipeline_of(one_profile([{"type": TYPE, "parameters": parameters}]))
    assert [str(error) for error in caught.value.errors] == [f"plugins[0].parameters.{said}"]
