"""A payload processor before two pools, through a real Envoy: right pools, and no byte lost."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cli.local.gateway import Gateway
from cli.local.metrics import sample_value, scrape
from simulator.headers import BODY_BYTES, BODY_SHA256, ECHO_DIGEST
from tests.support.gateway import envoy_counters, started_gateway
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CONFIG = """
pools:
  - {name: a, models: [alpha, alpha-lora], simulator: {replicas: 2, profile: instant}}
  - {name: b, models: [beta, beta-lora], simulator: {replicas: 2, profile: instant}}
  - {name: c, models: [slow], simulator: {replicas: 1, profile: h100-8b}}
payloadProcessor:
  config:
    plugins:
    - {type: body-field-to-header, parameters: {fieldName: model, headerName: X-Gateway-Model-Name}}
    - type: base-model-to-header
      parameters:
        mappings:
        - {baseModel: alpha, adapters: [alpha-lora]}
        - {baseModel: beta, adapters: [beta-lora], aliases: ["1"]}
    - {type: model-name-to-header}
    profiles:
    - name: default
      plugins:
        request: [{pluginRef: body-field-to-header}, {pluginRef: base-model-to-header}]
        response: [{pluginRef: model-name-to-header}]
"""
REQUESTS = 1000
POOL_OF = {"alpha": "a", "alpha-lora": "a", "beta": "b", "beta-lora": "b"}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with started_gateway(CONFIG, tmp_path) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=200)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as opened:
        yield opened


async def ask(
    gateway: Gateway, session: aiohttp.ClientSession, body: Any, headers: dict[str, str] | None = None
) -> tuple[int, bytes, Any]:
    raw = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
    sent = {"content-type": "application/json", **(headers or {})}
    async with session.post(f"{gateway.plan.url}/v1/completions", data=raw, headers=sent) as answer:
        return answer.status, await answer.read(), answer.headers


async def test_a_thousand_mixed_requests_reach_their_pools_whole(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    draw = random.Random(11)
    models = [draw.choice(list(POOL_OF)) for _ in range(REQUESTS)]
    sizes = [draw.choice((0, 10, 3000, 72_000)) for _ in range(REQUESTS)]
    sent = [
        json.dumps(
            {
                "model": model,
                "prompt": "h\u00e9llo",
                "max_tokens": 2,
                "stream": index % 5 == 0,
                "user": draw.randbytes(size // 2).hex(),
            }
        ).encode()
        for index, (model, size) in enumerate(zip(models, sizes, strict=True))
    ]
    answers = await asyncio.gather(*(ask(gateway, session, body, {ECHO_DIGEST: "1"}) for body in sent))
    assert Counter(status for status, _, _ in answers) == {200: REQUESTS}
    for body, (_, answer, headers), model in zip(sent, answers, models, strict=True):
        assert headers[BODY_BYTES] == str(len(body))
        assert headers[BODY_SHA256] == hashlib.sha256(body).hexdigest()
        assert headers["x-gateway-model-name"] == model
        assert json.dumps(model).encode() in answer
    for pool in gateway.plan.pools[:2]:
        page = await scrape(session, pool)
        wanted = sum(POOL_OF[model] == pool.name for model in models)
        assert sample_value(page, "llm_d_epp_request_total") == wanted
    counters = await envoy_counters(gateway, session, "ext_proc")
    for trouble in ("spurious_msgs_received", "server_half_closed", "streams_failed"):
        assert sum(value for name, value in counters.items() if name.endswith(trouble)) == 0, trouble


async def test_what_routes_match_is_the_body_s_and_never_the_client_s(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    forged = {"x-gateway-base-model-name": "beta", "x-gateway-model-name": "beta"}
    asked = {"model": "alpha", "prompt": "x", "max_tokens": 1}
    status, answer, _ = await ask(gateway, session, asked, forged)
    assert (status, json.loads(answer)["model"]) == (200, "alpha")
    page = await scrape(session, gateway.plan.pools[0])
    assert sample_value(page, "llm_d_epp_request_total") == 1
    status, answer, _ = await ask(gateway, session, {"model": "nobody", "prompt": "x"}, forged)
    assert (status, json.loads(answer)["error"]["code"]) == (404, "model_not_found")
    status, answer, _ = await ask(gateway, session, b"{", forged)
    assert status == 400
    error = json.loads(answer)["error"]
    assert error["message"].startswith("inference error: BadRequest - failed to parse request body")
    assert error["type"] == "invalid_request_error"
    async with session.get(f"{gateway.plan.url}/v1/models", headers=forged) as listing:
        assert [each["id"] for each in (await listing.json())["data"]] == [*POOL_OF, "slow"]


async def test_five_megabytes_pass_both_filters_exactly(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    body = b'{"model": "beta", "prompt": "x", "max_tokens": 1, "user": "%b"}'
    large = body % random.Random(7).randbytes(2_500_000).hex().encode()
    status, _, headers = await ask(gateway, session, large, {ECHO_DIGEST: "1"})
    assert (status, headers[BODY_BYTES]) == (200, str(len(large)))
    assert headers[BODY_SHA256] == hashlib.sha256(large).hexdigest()


async def test_a_stream_passes_as_it_is_produced(gateway: Gateway, session: aiohttp.ClientSession) -> None:
    body = {"model": "slow", "prompt": "x", "max_tokens": 150, "ignore_eos": True, "stream": True}
    async with session.post(f"{gateway.plan.url}/v1/completions", json=body) as answer:
        first = await answer.content.readline()
        assert first.startswith(b"data: {")
        page = await scrape(session, gateway.plan.pools[2])
        assert sample_value(page, "llm_d_epp_request_running") == 1
        events = [first, *[line async for line in answer.content]]
    assert [line for line in events if line.strip()][-1] == b"data: [DONE]\n"
    assert sum(line.startswith(b"data: {") for line in events) >= 150


async def test_without_the_processor_a_gateway_that_fails_closed_refuses_and_is_back_with_it(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    body = {"model": "alpha", "prompt": "x", "max_tokens": 1}
    assert (await ask(gateway, session, body))[0] == 200
    gateway.children["ipp"].kill()
    until = time.monotonic() + PATIENCE_S
    while (answer := await ask(gateway, session, body))[0] == 200:
        assert time.monotonic() < until
    status, refusal, headers = answer
    assert (status, json.loads(refusal)["error"]["code"]) == (503, "upstream_unavailable")
    assert headers["retry-after"] == "1"
    while (await ask(gateway, session, body))[0] != 200:
        assert time.monotonic() < until
        await asyncio.sleep(0.05)
