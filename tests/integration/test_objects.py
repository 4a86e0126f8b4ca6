"""Documents of objectives and rewrites change under a running gateway with a real Envoy; nothing restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from cli.local.gateway import Gateway
from dataplane.processes.ports import LOOPBACK
from tests.support.gateway import started_gateway

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CONFIG = """
pools:
  - name: pool
    models: [first, second]
    objectives: {gold: 10}
    rewrites:
      - matches: [{model: {value: alias}}]
        targets: [{modelRewrite: first}]
    simulator: {replicas: 2, profile: instant}
"""


class Site:
    """A running gateway, and a client of it and of its picker's pages."""

    def __init__(self, gateway: Gateway, session: aiohttp.ClientSession) -> None:
        (self.pool,) = gateway.plan.pools
        self.gateway = gateway
        self._url = f"{gateway.plan.url}/v1/chat/completions"
        self._pages = f"http://{LOOPBACK}:{self.pool.metrics_port}/debug"
        self._session = session
        self._asked = 0

    async def ask(self) -> tuple[int, str, str, int]:
        """Ask for the alias: status, model of the answer, model that served, priority."""
        self._asked += 1
        request_id = f"request-{self._asked}"
        headers = {"x-request-id": request_id, "x-llm-d-inference-objective": "gold"}
        body = {"model": "alias", "max_tokens": 1, "messages": [{"role": "user", "content": "who?"}]}
        async with self._session.post(self._url, json=body, headers=headers) as answer:
            document = await answer.json()
        (decision,) = (await self.page(f"decisions/{request_id}"))["decisions"]
        return answer.status, document["model"], decision["targetModel"], decision["priority"]

    async def page(self, name: str) -> dict[str, Any]:
        async with self._session.get(f"{self._pages}/{name}") as answer:
            found: dict[str, Any] = await answer.json()
            return found

    def write(self, text: str) -> None:
        """Replace the pool's documents atomically."""
        new = self.pool.objects_file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.pool.objects_file)

    async def reload(self) -> tuple[int, list[str]]:
        async with self._session.post(f"{self._pages}/reload") as answer:
            return answer.status, (await answer.json())["refused"]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with aiohttp.ClientSession() as session, started_gateway(CONFIG, tmp_path) as running:
        yield Site(running, session)


async def test_changed_documents_decide_without_a_restart_and_broken_ones_change_nothing(site: Site) -> None:
    assert await site.ask() == (200, "alias", "first", 10)
    objective, rewrite = yaml.safe_load_all(site.pool.objects_file.read_text())
    objective["spec"]["priority"] = -2
    rewrite["spec"]["rules"][0]["targets"] = [{"modelRewrite": "second"}]
    site.write(yaml.safe_dump_all([objective, rewrite]))
    while (seen := await site.ask()) != (200, "alias", "second", -2):
        assert seen == (200, "alias", "first", 10)
    rewrite["spec"]["rules"][0]["targets"] = []
    objective["spec"]["priority"] = 5
    site.write(yaml.safe_dump_all([objective, rewrite]))
    status, problems = await site.reload()
    assert status == 400
    assert "spec.rules[0].targets: names no model; give at least one" in problems[0]
    assert await site.ask() == (200, "alias", "second", 5)
    shown = await site.page("objects")
    assert [(each["name"], each["outdated"]) for each in shown["rewrites"]] == [("pool", True)]
    assert site.gateway.children["epp-pool"].restarts == 0
