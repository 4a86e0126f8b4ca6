"""A real gateway over simulated model servers, and what a test asks of it.

Requests go through Envoy; the picker is read through its pages, the servers through their admin port. Whoever
opens a rig closes it; its processes end with it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from cli.local.gateway import Gateway
from tests.support.gateway import started_gateway
from tests.support.waiting import PATIENCE_S, until

POD = "x-inference-pod"
"""Header by which a simulated server tells its name."""


class Rig:
    """A running gateway of one pool."""

    def __init__(self, gateway: Gateway, session: aiohttp.ClientSession) -> None:
        self.gateway = gateway
        self.plan = gateway.plan
        self.pool = gateway.plan.pools[0]
        self.session = session

    async def page(self, path: str) -> Any:
        """A debug page of the picker."""
        async with self.session.get(f"http://127.0.0.1:{self.pool.metrics_port}{path}") as answer:
            return await answer.json()

    async def endpoints(self) -> dict[str, dict[str, Any]]:
        """What the picker knows of each endpoint, by name."""
        rows = (await self.page("/debug/endpoints"))["endpoints"]
        return {row["name"]: row for row in rows}

    async def metric(self, name: str) -> float:
        """Sum over the picker's series whose name and labels begin like this."""
        async with self.session.get(f"http://127.0.0.1:{self.pool.metrics_port}/metrics") as answer:
            return total(await answer.text(), name)

    async def replicas(self) -> list[dict[str, Any]]:
        """What the simulator says of each replica."""
        url = f"http://127.0.0.1:{self.pool.simulator_admin_port}/replicas"
        async with self.session.get(url) as answer:
            rows: list[dict[str, Any]] = await answer.json()
        return rows

    async def measured(self, replica: Mapping[str, Any], name: str) -> float:
        """Sum over the series of one replica whose name and labels begin like this."""
        url = f"http://{replica['address']}:{replica['port']}/metrics"
        async with self.session.get(url) as answer:
            return total(await answer.text(), name)

    async def act(self, action: str, body: Mapping[str, Any], replica: int) -> None:
        """Do something to a replica."""
        url = f"http://127.0.0.1:{self.pool.simulator_admin_port}/replicas/{replica}/{action}"
        async with self.session.post(url, json=body) as answer:
            assert answer.status == 200, await answer.text()

    async def status(self, prompt: str, **headers: str) -> int:
        """Status of a completion with headers, ``_`` in their names for ``-``."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 1}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"{self.plan.url}/v1/completions"
        async with self.session.post(url, json=body, headers=named) as answer:
            await answer.read()
            return answer.status

    @asynccontextmanager
    async def asked(self, prompt: str, **fields: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """A completion through the gateway, its answer as it begins."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "ignore_eos": True, **fields}
        async with self.session.post(f"{self.plan.url}/v1/completions", json=body) as answer:
            yield answer

    async def served(self, prompt: str, **fields: Any) -> str:
        """Name of the replica that answers a completion, once it has."""
        async with self.asked(prompt, **fields) as answer:
            await answer.read()
            assert answer.status == 200, await answer.text()
            return answer.headers[POD]

    async def list_endpoints(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Replace the file of endpoints, and wait until the picker and Envoy know it."""
        new = self.pool.endpoints_file.with_suffix(".new")
        new.write_text(yaml.safe_dump({"endpoints": list(documents)}))
        new.rename(self.pool.endpoints_file)
        wanted = {document["name"]: document["labels"] for document in documents}
        places = {f"{document['address']}:{document['port']}" for document in documents}

        async def known() -> bool:
            found = {name: row["labels"] for name, row in (await self.endpoints()).items()}
            return found == wanted and await self.envoy_hosts() == places

        await until(known)

    def listed(self) -> list[dict[str, Any]]:
        """The documents in the file of endpoints."""
        found: list[dict[str, Any]] = yaml.safe_load(self.pool.endpoints_file.read_text())["endpoints"]
        return found

    async def envoy_hosts(self) -> set[str]:
        """The endpoints of the pool's cluster."""
        url = f"http://127.0.0.1:{self.plan.admin_port}/clusters"
        async with self.session.get(url, params={"format": "json"}) as answer:
            clusters = (await answer.json(content_type=None))["cluster_statuses"]
        (cluster,) = [one for one in clusters if one["name"] == f"pool-{self.pool.name}"]
        sockets = [host["address"]["socket_address"] for host in cluster.get("host_statuses", ())]
        return {f"{socket['address']}:{socket['port_value']}" for socket in sockets}


def total(exposition: str, name: str) -> float:
    """Sum over the series whose name and labels begin like this."""
    found = re.findall(rf"^{re.escape(name)}(?![\w]).*? (\S+)$", exposition, re.MULTILINE)
    return sum(map(float, found))


@asynccontextmanager
async def running(config: str, folder: Path) -> AsyncIterator[Rig]:
    """The gateway of a configuration, ready."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with (
        started_gateway(config, folder) as gateway,
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
    ):
        yield Rig(gateway, session)


@asynccontextmanager
async def underway(requests: Iterable[Coroutine[Any, Any, str]]) -> AsyncIterator[list[asyncio.Task[str]]]:
    """Requests all at once; what is unanswered when the block ends is left."""
    tasks = [asyncio.create_task(request) for request in requests]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
