"""One trace from the client through Envoy and the picker to the model server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from cli.local.gateway import Gateway
from tests.support.collector import Collector
from tests.support.gateway import started_gateway
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CONFIG = """
pools:
  - name: pool
    models: [tiny]
    simulator: {replicas: 2, profile: instant}
"""
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
BODY = {"model": "tiny", "max_tokens": 3, "messages": [{"role": "user", "content": "where to?"}]}


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    """A collector that the processes started from here on know of; they follow their callers alone."""
    collector = Collector()
    await collector.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    yield collector
    await collector.stop()


@pytest.fixture
async def gateway(tmp_path: Path, collector: Collector) -> AsyncIterator[Gateway]:
    """A small gateway, ready."""
    async with started_gateway(CONFIG, tmp_path) as running:
        yield running


async def received(session: aiohttp.ClientSession, url: str, traceparent: str) -> tuple[list[str], int]:
    """The values of ``traceparent`` with which a request reaches its model server; tokens of its answer."""
    headers = {"x-echo-digest": "1", "x-request-id": "r1"}
    if traceparent:
        headers["traceparent"] = traceparent
    async with session.post(f"{url}/v1/chat/completions", json=BODY, headers=headers) as answer:
        assert answer.status == 200
        usage = (await answer.json())["usage"]
        pairs = json.loads(answer.headers["x-received-headers"])
    return [value for name, value in pairs if name == "traceparent"], usage["completion_tokens"]


async def test_a_trace_goes_from_the_client_to_the_model_server(
    gateway: Gateway, collector: Collector
) -> None:
    url = gateway.plan.url
    async with aiohttp.ClientSession() as session:
        (sent,), tokens = await received(session, url, f"00-{TRACE_ID}-b7ad6b7169203331-01")
        (untraced,), _ = await received(session, url, f"00-{TRACE_ID}-b7ad6b7169203331-00")
        (ours,), _ = await received(session, url, "")
    async with asyncio.timeout(PATIENCE_S):
        while "gateway.request" not in {span.name for _, span in collector.spans}:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    (whole,) = (span for _, span in collector.spans if span.name == "gateway.request")
    assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (TRACE_ID, "b7ad6b7169203331")
    assert sent == f"00-{TRACE_ID}-{whole.span_id.hex()}-01"
    assert untraced == f"00-{TRACE_ID}-b7ad6b7169203331-00"
    assert ours.endswith("-00")
    said = {each.key: each.value for each in whole.attributes}
    assert said["gen_ai.request.model"].string_value == "tiny"
    assert said["http.response.status_code"].int_value == 200
    assert said["gen_ai.usage.output_tokens"].int_value == tokens
