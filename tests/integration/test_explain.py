"""A client that asks why, through a real Envoy: the answer comes with the response, and only from us."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from cli.local.gateway import Gateway
from tests.support.gateway import started_gateway

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CONFIG = """
pools:
  - name: pool
    models: [tiny]
    simulator: {replicas: 2, profile: instant}
    picker: {flags: [--explain-header=full, --explain-sampling=0]}
"""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A small gateway, ready."""
    async with started_gateway(CONFIG, tmp_path) as running:
        yield running


async def test_the_header_of_a_response_leads_to_the_trace_of_its_request(gateway: Gateway) -> None:
    body = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "why?"}]}
    page = f"http://127.0.0.1:{gateway.plan.pools[0].metrics_port}/debug/decisions"
    url = f"{gateway.plan.url}/v1/chat/completions"
    async with aiohttp.ClientSession() as session:
        async with session.post(url, json=body, headers={"x-pointsman-explain": "true"}) as answer:
            assert answer.status == 200
            (line,) = answer.headers.getall("x-pointsman-explain")
        async with session.post(url, json=body) as answer:
            assert answer.status == 200
            assert "x-pointsman-explain" not in answer.headers
        said = dict(pair.split("=", 1) for pair in line.split("; "))
        async with session.get(f"{page}/{said['id']}") as answer:
            (shown,) = (await answer.json())["decisions"]
        async with session.get(f"{page}?traced=true") as answer:
            assert [d["requestId"] for d in (await answer.json())["decisions"]] == [shown["requestId"]]
    assert shown["traced"] == "asked"
    assert shown["destination"] == [said["endpoint"]]
    assert shown["response"]["status"] == 200
