"""Configurations rolled out to a picker that serves traffic: applied, refused, gone back on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from cli.local.gateway import Gateway
from tests.support.controlplane_command import Command, serving
from tests.support.gateway import started_gateway
from tests.support.plugin_packages import install_project

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

EXAMPLE = Path(__file__).parents[2] / "docs/examples/plugin-package"
CONFIG = """
pools:
  - name: pool
    models: [tiny]
    simulator: {replicas: 2, profile: instant}
"""
POOL = {
    "apiVersion": "inference.networking.k8s.io/v1",
    "kind": "InferencePool",
    "metadata": {"name": "pool"},
    "spec": {"selector": {"matchLabels": {"app": "tiny"}}, "targetPorts": [{"number": 8000}]},
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A small gateway, ready."""
    async with started_gateway(CONFIG, tmp_path / "run") as running:
        yield running


class Operator:
    """Works with the control plane through the command, beside a gateway that serves."""

    def __init__(self, command: Command, gateway: Gateway, session: aiohttp.ClientSession) -> None:
        self.command = command
        self.gateway = gateway
        self.session = session
        self.pool = gateway.plan.pools[0]
        self.file = self.pool.picker_file
        self.document: dict[str, Any] = yaml.safe_load(self.file.read_text())
        self.document["metadata"] = {
            "name": "chat",
            "annotations": {"pointsman.dev/pools": "pool", "pointsman.dev/rollout": "1"},
        }

    async def says(self, *arguments: str) -> str:
        return await asyncio.to_thread(self.command.says, *arguments)

    async def apply(self) -> None:
        text = yaml.safe_dump_all([POOL, self.document])
        await asyncio.to_thread(self.command.says, "apply", "-", text=text)

    def weigh(self, weight: float) -> None:
        self.document["schedulingProfiles"][0]["plugins"][0]["weight"] = weight

    async def until_status(self, is_there: Callable[[str], bool]) -> str:
        status = ""
        for _ in range(60):
            status = await self.says("rollout", "status", "chat")
            if is_there(status):
                return status
            await asyncio.sleep(0.2)
        raise AssertionError(status)

    async def config(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.pool.metrics_port}/debug/config"
        async with self.session.get(url) as answer:
            found: dict[str, Any] = await answer.json()
            return found

    async def serves(self) -> None:
        body = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
        for _ in range(5):
            url = f"{self.gateway.plan.url}/v1/chat/completions"
            async with self.session.post(url, json=body) as answer:
                assert answer.status == 200, await answer.text()


@contextmanager
def following(operator: Operator, token: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The follower beside the picker."""
    command = [sys.executable, "-m", "cli.main", "controlplane", "follow"]
    flags = {
        "--pool": "pool",
        "--worker": "w1",
        "--config-file": str(operator.file),
        "--picker": f"http://127.0.0.1:{operator.pool.metrics_port}",
        "--interval": "0.2",
    }
    environment = operator.command.environment | {"POINTSMAN_TOKEN": token}
    with log.open("wb") as output:
        words = [word for pair in flags.items() for word in pair]
        process = subprocess.Popen([*command, *words], env=environment, stderr=output, stdout=output)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(20) == 0


async def test_a_configuration_goes_out_is_refused_and_gone_back_on(gateway: Gateway, tmp_path: Path) -> None:
    installed, log = tmp_path / "installed", tmp_path / "follow.log"
    installed.mkdir()
    install_project(EXAMPLE, installed)
    command = Command(tmp_path)
    # The package is beside the control plane and not beside the picker.
    paths = [str(installed), command.environment.get("PYTHONPATH", "")]
    command.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    async with aiohttp.ClientSession() as session:
        with serving(command, tmp_path / "log"):
            operator = Operator(command, gateway, session)
            await operator.says("controlplane", "user", "w1", "--role", "worker")
            token = (await operator.says("controlplane", "token", "w1", "follow")).strip()
            with following(operator, token, log) as follower:
                await _first_revision(operator)
                await _refused_revision(operator)
                await _back(operator)
                good = operator.file.read_bytes()
                assert follower.poll() is None, log.read_text()
                running = (await operator.config())["reload"]
                await operator.serves()
        # The control plane is gone.
        await operator.serves()
        assert (await operator.config())["reload"] == running
        assert operator.file.read_bytes() == good


async def _first_revision(operator: Operator) -> None:
    """A good one: to the canary, then to all."""
    operator.weigh(0.25)
    await operator.apply()
    await operator.until_status(lambda text: "w1 (pool): applied, runs revision 1" in text)
    assert "is canary" in await operator.says("rollout", "status", "chat")
    assert (await operator.says("rollout", "promote", "chat")).endswith(
        " of revision 1, canary 1 is complete\n"
    )
    profile = (await operator.config())["config"]["schedulingProfiles"][0]
    assert profile["plugins"][0]["weight"] == 0.25
    await operator.serves()


async def _refused_revision(operator: Operator) -> None:
    """One with a plugin that the picker does not have."""
    before = operator.file.read_bytes()
    kept = operator.document
    operator.document = yaml.safe_load(yaml.safe_dump(kept))
    operator.document["plugins"].append({"type": "label-cost-scorer", "name": "foreign"})
    await operator.apply()
    status = await operator.until_status(lambda text: "is halted" in text)
    assert "w1 (pool): rejected, runs revision 1" in status
    assert "active revision: 1" in status
    assert "label-cost-scorer" in status.splitlines()[-1]
    place = f"plugins[{len(operator.document['plugins']) - 1}]"
    assert status.splitlines()[-1].strip().startswith(place)
    reload = (await operator.config())["reload"]
    assert (operator.file.read_bytes(), reload["refused"]) == (before, [])
    await operator.serves()
    operator.document = kept


async def _back(operator: Operator) -> None:
    """A revision 3 with the content of the first."""
    await operator.says("rollout", "back", "chat")
    status = await operator.until_status(lambda text: "is complete" in text)
    assert "of revision 3 is complete" in status
    assert "w1 (pool): applied, runs revision 3" in status
    shown = await operator.says("get", "endpointpickerconfigs", "chat")
    assert "foreign" not in shown
