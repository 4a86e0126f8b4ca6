"""A gateway with two pools, one open and one closed to requests without a picker, through a real Envoy."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cli.local.gateway import Gateway
from cli.local.metrics import sample_value, scrape
from dataplane.processes.ports import LOOPBACK
from simulator.headers import BODY_BYTES, BODY_SHA256, ECHO_DIGEST
from tests.support.gateway import envoy_counters, started_gateway
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CONFIG = """
pools:
  - {name: open, models: [alpha], failureMode: FailOpen, simulator: {replicas: 3, profile: instant}}
  - {name: closed, models: [beta], failureMode: FailClose, simulator: {replicas: 3, profile: instant}}
"""
REQUESTS = 400


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with started_gateway(CONFIG, tmp_path) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


async def ask(gateway: Gateway, session: aiohttp.ClientSession, model: str) -> tuple[int, Any, Any]:
    """Status, document and headers of one completion."""
    body = {"model": model, "prompt": "hello", "max_tokens": 1}
    async with session.post(f"{gateway.plan.url}/v1/completions", json=body) as answer:
        return answer.status, await answer.json(), answer.headers


async def test_concurrent_requests_reach_the_pool_of_their_model(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    models = ["alpha", "beta"] * (REQUESTS // 2)
    answers = await asyncio.gather(*(ask(gateway, session, model) for model in models))

    assert Counter(status for status, _, _ in answers) == {200: REQUESTS}
    assert [document["model"] for _, document, _ in answers] == models
    for pool in gateway.plan.pools:
        page = await scrape(session, pool)
        assert sample_value(page, "llm_d_epp_request_total") == REQUESTS / 2

    counters = await envoy_counters(gateway, session, "ext_proc")
    assert sum(v for name, v in counters.items() if name.endswith("streams_started")) == REQUESTS
    for trouble in ("spurious_msgs_received", "server_half_closed", "streams_failed"):
        assert sum(value for name, value in counters.items() if name.endswith(trouble)) == 0, trouble


async def test_five_megabytes_arrive_whole_and_too_much_is_refused_in_words(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    url = f"{gateway.plan.url}/v1/completions"
    body = b'{"model": "beta", "prompt": "hello", "max_tokens": 1, "user": "%b"}'
    large = body % random.Random(7).randbytes(2_500_000).hex().encode()
    async with session.post(url, data=io.BytesIO(large), headers={ECHO_DIGEST: "1"}) as answer:
        assert answer.status == 200
        assert answer.headers[BODY_BYTES] == str(len(large))
        assert answer.headers[BODY_SHA256] == hashlib.sha256(large).hexdigest()
    too_large = io.BytesIO(body % (b"x" * gateway.plan.max_body_bytes))
    async with session.post(url, data=too_large) as answer:
        assert answer.status == 413
        assert (await answer.json())["error"]["type"] == "invalid_request_error"

    counters = await envoy_counters(gateway, session, "ext_proc")
    for trouble in ("spurious_msgs_received", "server_half_closed", "streams_failed"):
        assert sum(value for name, value in counters.items() if name.endswith(trouble)) == 0, trouble


async def test_without_its_picker_the_open_pool_serves_and_the_closed_one_refuses(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    for pool in gateway.plan.pools:
        child = gateway.children[f"epp-{pool.name}"]
        assert child.pid is not None
        os.kill(child.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (await ask(gateway, session, "alpha"))[0] != 200:  # noqa: ASYNC110 - health checks take their time
                await asyncio.sleep(0.1)
        assert [(await ask(gateway, session, "alpha"))[0] for _ in range(10)] == [200] * 10

        status, document, headers = await ask(gateway, session, "beta")
        assert status == 503
        assert headers["retry-after"] == "1"
        assert document["error"]["code"] == "upstream_unavailable"
        assert document["error"]["message"].startswith("No model server can take the request right now; ")
        assert "ext_proc" not in document["error"]["message"]
    finally:
        for pool in gateway.plan.pools:
            os.kill(gateway.children[f"epp-{pool.name}"].pid or 0, signal.SIGCONT)


async def test_a_picker_that_is_killed_and_stays_away_is_done_without_or_refused_for(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    for pool in gateway.plan.pools:
        child = gateway.children[f"epp-{pool.name}"]
        child.command = ["sleep", "600"]  # what is started again is no picker
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        while (await ask(gateway, session, "alpha"))[0] != 200:  # noqa: ASYNC110 - health checks take their time
            await asyncio.sleep(0.1)
    assert [(await ask(gateway, session, "alpha"))[0] for _ in range(10)] == [200] * 10
    refused = [await ask(gateway, session, "beta") for _ in range(10)]
    assert {status for status, _, _ in refused} == {503}
    assert {document["error"]["code"] for _, document, _ in refused} == {"upstream_unavailable"}


async def test_with_every_server_gone_each_pool_refuses_in_the_same_words(
    gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    for pool in gateway.plan.pools:
        for replica in range(3):
            url = f"http://{LOOPBACK}:{pool.simulator_admin_port}/replicas/{replica}/kill"
            async with session.post(url) as answer:
                assert answer.status == 200
    for model in ("alpha", "beta"):
        status, document, headers = await ask(gateway, session, model)
        assert (status, document["error"]["type"]) == (503, "server_error")
        assert int(headers["retry-after"]) >= 1
