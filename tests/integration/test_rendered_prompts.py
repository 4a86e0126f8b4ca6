"""Requests that wait for their prompts to be rendered, through a real Envoy."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from cli.local.config import parse
from cli.local.gateway import Gateway
from cli.local.metrics import sample_value, scrape
from cli.local.plan import make_plan
from dataplane.processes.ports import LOOPBACK, Ports
from tests.support.rendering import rendering

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CONFIG = """
pools:
  - name: pool
    models: [tiny]
    simulator: {{replicas: 3, profile: instant}}
    picker:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins:
        - {{type: token-producer, parameters: {{vllm: {{url: "{url}"}}}}}}
        - {{type: prefix-cache-scorer}}
        - {{type: queue-scorer}}
"""
REQUESTS = 100
BODY = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}


async def test_requests_wait_and_none_is_lost(tmp_path: Path) -> None:
    async with rendering() as renderer, aiohttp.ClientSession() as session:
        ports = Ports(random.SystemRandom())
        plan = make_plan(parse(CONFIG.format(url=renderer.url)), tmp_path, ports)
        url, pool = f"{plan.url}/v1/chat/completions", plan.pools[0]

        async def ask() -> int:
            async with session.post(url, json=BODY) as answer:
                await answer.read()
                return answer.status

        async def figure(name: str, **labels: str) -> float | None:
            return sample_value(await scrape(session, pool), name, **labels)

        async with Gateway(plan, say=lambda _: None) as gateway:
            await gateway.start()
            renderer.takes_s = 0.05
            statuses = await asyncio.gather(*(ask() for _ in range(REQUESTS)))
            assert Counter(statuses) == {200: REQUESTS}
            assert len(renderer.asked) == REQUESTS
            assert await figure("pointsman_epp_prompt_renderings_total", outcome="rendered") == REQUESTS

            renderer.hangs = True
            leaving = [asyncio.create_task(ask()) for _ in range(10)]
            while len(renderer.asked) < REQUESTS + 10:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)
            for task in leaving:
                task.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)
            renderer.hangs = False
            while await figure("pointsman_extproc_streams_open"):  # noqa: ASYNC110 - nor has Envoy
                await asyncio.sleep(0.05)
            assert await figure("llm_d_epp_inflight_requests") == 0
            assert await ask() == 200
            assert await figure("llm_d_epp_request_total") == REQUESTS + 1

            stats = f"http://{LOOPBACK}:{plan.admin_port}/stats"
            async with session.get(stats, params={"filter": "ext_proc", "format": "json"}) as answer:
                found = json.loads(await answer.text())["stats"]
            counters = {entry["name"]: entry["value"] for entry in found if "value" in entry}
            for trouble in ("spurious_msgs_received", "server_half_closed", "streams_failed"):
                assert sum(value for name, value in counters.items() if name.endswith(trouble)) == 0, trouble
