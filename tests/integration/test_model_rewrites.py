"""Clients ask for one model and another answers, through a real Envoy, and no client can tell."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from cli.local.gateway import Gateway
from cli.local.metrics import sample_value, scrape
from dataplane.processes.ports import LOOPBACK
from simulator.headers import BODY_SHA256
from tests.support.gateway import envoy_counters, started_gateway
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CONFIG = """
gateway: {observeResponses: false}
pools:
  - name: pool
    models: [target, open]
    rewrites:
      - matches: [{model: {value: alias}}]
        targets: [{modelRewrite: target}]
    simulator: {replicas: 2, profile: instant, flags: [--mode, echo]}
"""
"""The model servers know ``target`` and ``open``. Responses are shown because there are rewrites."""

PROMPT = 'say "model":"target" and {"model": "target"} and \\"model\\":\\"target\\" é'
MESSAGES: list[Any] = [{"role": "user", "content": PROMPT}]
HEADER = "x-llm-d-model-name-rewrite"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with started_gateway(CONFIG, tmp_path) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


def client(gateway: Gateway) -> openai.AsyncOpenAI:
    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    return openai.AsyncOpenAI(
        base_url=f"{gateway.plan.url}/v1", api_key="unused", max_retries=0, http_client=http
    )


async def assert_content(gateway: Gateway, session: aiohttp.ClientSession) -> None:
    """Envoy has taken nothing amiss."""
    counters = await envoy_counters(gateway, session, "ext_proc")
    for trouble in ("spurious_msgs_received", "streams_failed", "rejected_header_mutations"):
        assert sum(value for name, value in counters.items() if name.endswith(trouble)) == 0, trouble


async def test_official_client_asks_for_an_alias_and_is_answered_by_it(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    async with client(gateway) as ask:
        plain = await ask.chat.completions.create(model="alias", messages=MESSAGES, max_tokens=200)
        stream = await ask.chat.completions.create(
            model="alias",
            messages=MESSAGES,
            max_tokens=200,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        text = await ask.completions.create(model="alias", prompt="hello", max_tokens=3)
        vector = await ask.embeddings.create(model="alias", input="hello")
    assert plain.model == text.model == vector.model == "alias"
    assert PROMPT in (plain.choices[0].message.content or "")
    assert plain.usage is not None
    assert {chunk.model for chunk in chunks} == {"alias"}
    assert PROMPT in "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices)
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.total_tokens) == (plain.usage.prompt_tokens, plain.usage.total_tokens)

    pool = gateway.plan.pools[0]
    page = await scrape(session, pool)
    labels = {"model_name": "alias", "target_model_name": "target"}
    assert sample_value(page, "llm_d_epp_request_total", **labels) == 4
    assert sample_value(page, "llm_d_epp_request_total") == 4
    assert sample_value(page, "llm_d_epp_request_input_tokens_count", **labels) == 4
    assert (
        sample_value(page, "llm_d_epp_request_input_tokens_sum", **labels) or 0
    ) > 2 * plain.usage.prompt_tokens
    decided = {"model_rewrite_name": "pool", "model_name": "alias", "target_model": "target"}
    assert sample_value(page, "llm_d_epp_model_rewrite_decisions_total", **decided) == 4
    await assert_content(gateway, session)


@pytest.mark.parametrize("model", ["alias", "open"])
async def test_model_server_gets_the_client_s_bytes_with_another_name(
    gateway: Gateway, session: aiohttp.ClientSession, model: str
) -> None:
    """A rule decides for one model, the header for the other; of both the rule."""
    body = b'{ "prompt" : "caf\xc3\xa9 \\u00e9",\n "top_p":1.0, "model" : "%b", "seed":12345678901234567890 }'
    headers = {HEADER: "target" if model == "open" else "unknown", "x-echo-digest": "1"}
    url = f"{gateway.plan.url}/v1/completions"
    async with session.post(url, data=body % model.encode(), headers=headers) as answer:
        assert (answer.status, (await answer.json())["model"]) == (200, model)
        arrived = answer.headers[BODY_SHA256]
    assert arrived == hashlib.sha256(body % b"target").hexdigest()
    async with session.post(url, data=body % b"open", headers={"x-echo-digest": "1"}) as answer:
        assert (await answer.json())["model"] == "open"
        assert answer.headers[BODY_SHA256] == hashlib.sha256(body % b"open").hexdigest()
    await assert_content(gateway, session)


@pytest.mark.parametrize("stream", [False, True])
async def test_client_of_http_1_0_reads_its_model_until_the_connection_ends(
    gateway: Gateway, stream: bool
) -> None:
    body = json.dumps({"model": "alias", "prompt": "hello", "max_tokens": 5, "stream": stream}).encode()
    reader, writer = await asyncio.open_connection(LOOPBACK, gateway.plan.port)
    writer.write(b"POST /v1/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    async with asyncio.timeout(PATIENCE_S):
        head, _, text = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.0 200 ")
    assert b"transfer-encoding" not in head.lower()
    assert b'"model":"alias"' in text
    assert b"target" not in text
    assert text.endswith(b"data: [DONE]\n\n") is stream


async def test_error_about_a_model_that_nobody_serves_passes(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    body = {"model": "open", "prompt": "hello"}
    async with session.post(
        f"{gateway.plan.url}/v1/completions", json=body, headers={HEADER: "nobody"}
    ) as answer:
        assert answer.status == 404
        assert "nobody" in await answer.text()


async def test_many_at_once_and_large_bodies_all_arrive_whole(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    async def ask(number: int) -> None:
        prompt = f"{number} " + PROMPT * (number % 5) * 60
        body = {"prompt": prompt, "stream": number % 2 == 0, "max_tokens": 10_000, "model": "alias"}
        async with session.post(f"{gateway.plan.url}/v1/completions", json=body) as answer:
            text = await answer.text()
        assert answer.status == 200, text
        if number % 2:
            documents = [json.loads(text)]
        else:
            assert text.endswith("data: [DONE]\n\n")
            documents = [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data: {")]
        assert {document["model"] for document in documents} == {"alias"}
        assert (
            "".join(c["text"] for document in documents for c in document["choices"]).strip()
            == prompt.strip()
        )

    await asyncio.gather(*(ask(number) for number in range(40)))
    await assert_content(gateway, session)
