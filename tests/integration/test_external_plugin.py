"""A plugin of an installed package decides where a real gateway sends requests."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from cli.local.gateway import Gateway
from tests.support.gateway import started_gateway
from tests.support.plugin_packages import install_project
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "docs/examples/plugin-package"
CONFIG = """
pools:
  - name: pool
    models: [tiny]
    simulator: {replicas: 3, profile: instant}
"""
REQUESTS = 20


@pytest.fixture
async def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    """A small gateway whose processes find the example package, ready."""
    installed = tmp_path / "installed"
    installed.mkdir()
    install_project(EXAMPLE, installed)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))
    )
    async with started_gateway(CONFIG, tmp_path / "run") as running:
        yield running


def change(file: Path, document: dict[str, Any]) -> None:
    """Replace a file atomically."""
    new = file.with_suffix(".new")
    new.write_text(yaml.safe_dump(document))
    new.rename(file)


async def page(session: aiohttp.ClientSession, gateway: Gateway, path: str) -> dict[str, Any]:
    """A debug page of the pool's picker."""
    port = gateway.plan.pools[0].metrics_port
    async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
        document: dict[str, Any] = await answer.json()
        return document


async def test_requests_go_where_the_plugin_says(gateway: Gateway) -> None:
    pool = gateway.plan.pools[0]
    endpoints = yaml.safe_load(pool.endpoints_file.read_text())
    for entry, cost in zip(endpoints["endpoints"], ("3", "1", "2"), strict=True):
        entry["labels"] = {**entry.get("labels", {}), "example.com/cost-per-hour": cost}
    cheap = endpoints["endpoints"][1]
    change(pool.endpoints_file, endpoints)
    picker = yaml.safe_load(pool.picker_file.read_text())
    picker["plugins"].append({"type": "label-cost-scorer"})
    picker["schedulingProfiles"][0]["plugins"] = [{"pluginRef": "label-cost-scorer"}]
    change(pool.picker_file, picker)
    async with aiohttp.ClientSession() as session:
        config = await page(session, gateway, "/debug/config")
        assert config["installedPlugins"] == {"label-cost-scorer": "example-cost-scorer 1.0.0"}

        async def is_in_use() -> bool:
            config = await page(session, gateway, "/debug/config")
            listed = (await page(session, gateway, "/debug/endpoints"))["endpoints"]
            costs = {entry["labels"].get("example.com/cost-per-hour") for entry in listed}
            return "label-cost-scorer" in config["plugins"] and costs == {"1", "2", "3"}

        await until(is_in_use)
        for _ in range(REQUESTS):
            body = {"model": "tiny", "prompt": "hello", "max_tokens": 1}
            async with session.post(f"{gateway.plan.url}/v1/completions", json=body) as answer:
                assert answer.status == 200
        decisions = (await page(session, gateway, f"/debug/decisions?limit={REQUESTS}"))["decisions"]
    assert len(decisions) == REQUESTS
    assert {decision["destination"][0] for decision in decisions} == {f"{cheap['address']}:{cheap['port']}"}
