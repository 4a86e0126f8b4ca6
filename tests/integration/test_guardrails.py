"""Guardrails on real requests through Envoy: blocked, masked and restored, and streams cut."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import openai
import pytest
import yaml

from cli.local.gateway import Gateway
from tests.support.gateway import envoy_counters, started_gateway

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CONFIG = """
pools:
  - {name: a, models: [alpha], simulator: {replicas: 2, profile: instant, flags: [--mode, echo]}}
payloadProcessor:
  config:
    plugins:
    - {type: guardrails}
    profiles:
    - name: default
      plugins: {request: [{pluginRef: guardrails}], response: [{pluginRef: guardrails}]}
  policies:
  - apiVersion: pointsman.dev/v1
    kind: GuardrailPolicy
    metadata: {name: house}
    spec:
      rules:
      - name: secrets
        type: keywords
        message: Project names stay in the house.
        parameters: {words: [bluebird]}
      - name: mail
        type: pii
        mode: mask
        parameters: {entities: [email]}
      - name: answers
        type: keywords
        stages: [response, stream]
        parameters: {words: [nightingale]}
"""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with started_gateway(CONFIG, tmp_path) as running:
        yield running


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{gateway.plan.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def test_a_blocked_request_reaches_no_model_server(
    gateway: Gateway, client: openai.AsyncOpenAI
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="alpha", messages=user("tell me of Blue\u200bbird"))
    assert caught.value.code == "guardrail_keywords"
    assert caught.value.body == {
        "message": "Project names stay in the house.",
        "type": "invalid_request_error",
        "param": "messages[0].content",
        "code": "guardrail_keywords",
    }
    async with aiohttp.ClientSession() as session:
        counters = await envoy_counters(gateway, session, "cluster.pool-a.upstream_rq_total")
    assert counters == {"cluster.pool-a.upstream_rq_total": 0}


async def test_an_address_never_reaches_the_model_and_comes_back_to_its_caller(
    gateway: Gateway, client: openai.AsyncOpenAI
) -> None:
    messages = user("say ada@example.org twice")
    answer = await client.chat.completions.create(model="alpha", messages=messages)
    assert "ada@example.org" in str(answer.choices[0].message.content)
    stream = await client.chat.completions.create(model="alpha", messages=messages, stream=True)
    said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert "ada@example.org" in said
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{gateway.plan.pools[0].metrics_port}/debug/decisions"
        async with session.get(url) as page:
            text = await page.text()
    assert "ada@example.org" not in text


async def test_an_answer_that_says_what_it_may_not_is_withheld(client: openai.AsyncOpenAI) -> None:
    messages = user("a song of the nightingale at night")
    answer = await client.chat.completions.create(model="alpha", messages=messages)
    assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("content_filter", "")


async def test_a_stream_is_cut_cleanly_before_what_it_may_not_say(
    gateway: Gateway, client: openai.AsyncOpenAI
) -> None:
    body = {
        "model": "alpha",
        "messages": user("a song of the nightingale at night"),
        "stream": True,
        "max_tokens": 200,
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{gateway.plan.url}/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status == 200
        text = (await answer.read()).decode()
    assert "night" not in text.replace("guardrail", "").split("content_filter")[0]
    assert '"finish_reason":"content_filter"' in text
    assert "guardrail_keywords" in text
    assert text.endswith("data: [DONE]\n\n")
    async with aiohttp.ClientSession() as session:
        counters = await envoy_counters(gateway, session, "ext_proc")
    for trouble in ("spurious_msgs_received", "server_half_closed", "streams_failed"):
        assert sum(value for name, value in counters.items() if name.endswith(trouble)) == 0, trouble


async def test_policies_are_followed_and_a_broken_file_changes_nothing(
    gateway: Gateway, client: openai.AsyncOpenAI
) -> None:
    ipp = gateway.plan.processor
    assert ipp is not None
    document = yaml.safe_load(ipp.policies_file.read_text())
    document["spec"]["rules"][0]["parameters"]["words"] = ["sparrow"]
    ipp.policies_file.write_text(json.dumps(document))
    url = f"http://127.0.0.1:{ipp.metrics_port}/debug/reload"
    async with aiohttp.ClientSession() as session:
        async with session.post(url) as answer:
            assert await answer.json() == {"refused": []}
        await client.chat.completions.create(model="alpha", messages=user("bluebird"))
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model="alpha", messages=user("sparrow"))
        document["spec"]["rules"][0]["parameters"]["words"] = []
        ipp.policies_file.write_text(json.dumps(document))
        async with session.post(url) as answer:
            assert answer.status == 400
            said = (await answer.json())["refused"]
        assert "spec.rules[0].parameters.words" in said[0]
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model="alpha", messages=user("sparrow"))
