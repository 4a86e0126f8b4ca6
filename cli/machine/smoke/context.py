"""What the checks of a whole machine work with: API, gateway, and pools as the API tells of them."""

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from cli.local.smoke.context import CheckError, Pool, chat, distinct_text, expect, until
from cli.local.smoke.requests import CHAT
from cli.machine.api import ApiError
from cli.machine.gateway import GATEWAY, GatewayPlace
from cli.machine.machine import Machine

READY_WITHIN_S = 90.0
ADMIN_LINE = re.compile(r"^admin: http://[^:]*:(\d+)/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SmokePool:
    """A pool as the control plane holds it and the fleet runner runs it."""

    name: str
    models: Sequence[str]
    names: Sequence[str]
    objects: Sequence[Mapping[str, Any]]
    fail_open: bool
    replicas: int
    metrics_port: int
    simulator_admin_port: int


@dataclass(frozen=True, slots=True)
class MachineTarget:
    """The gateway, for the checks that know nothing of a control plane."""

    machine: Machine
    url: str
    admin_port: int
    max_body_bytes: int
    pools: Sequence[Pool]

    async def picker_pid(self, pool: str) -> int | None:
        """Process id of a pool's picker while it runs."""
        return await picker_pid(self.machine, pool)


class Smoke:
    """Shared by all checks of a run."""

    def __init__(self, machine: Machine, session: aiohttp.ClientSession) -> None:
        self.machine = machine
        self.api = machine.api
        self.session = session
        self.answered: Counter[str] = Counter()
        """Requests that a model has answered with 200."""

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self.gateway.url

    @property
    def gateway(self) -> GatewayPlace:
        """Where it is. `CheckError` when there is none."""
        gateway = self.machine.gateway
        if gateway is None:
            raise CheckError(f"there is no Gateway {GATEWAY}")
        return gateway

    async def ask(self, model: str, **fields: Any) -> tuple[int, Any]:
        """Status and decoded body of one chat completion."""
        body = chat(model, distinct_text(10), max_tokens=1) | fields
        async with self.session.post(self.url + CHAT, json=body) as answer:
            found = await answer.json(content_type=None)
        self.answered[model] += answer.status == 200
        return answer.status, found

    async def page(self, pool: str, path: str) -> Any:
        """A page of a pool's picker, decoded. `ApiError` while there is none."""
        ports = (await self.machine.reports()).get(pool, {}).get("ports")
        if not ports:
            raise ApiError(f"{pool} has no picker")
        async with self.session.get(f"http://127.0.0.1:{ports['metrics']}{path}") as answer:
            return await answer.json(content_type=None)

    async def target(self) -> MachineTarget:
        """The gateway with the pools that are there now."""
        reports = await self.machine.reports()
        rows = {row["metadata"]["name"]: row for row in await self.api.rows("pools")}
        objects = [*await self.api.rows("objectives"), *await self.api.rows("modelrewrites")]
        pools = [smoke_pool(rows[name], reports[name], objects) for name in sorted(reports)]
        place = self.gateway
        return MachineTarget(self.machine, place.url, place.admin_port, place.max_body_bytes, pools)


def smoke_pool(
    row: Mapping[str, Any], report: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]
) -> SmokePool:
    """A pool from its document, its report and the objects of all pools."""
    name, spec = row["metadata"]["name"], row["spec"]
    own = [each for each in objects if each["spec"]["poolRef"]["name"] == name]
    aliases = [
        match["model"]["value"]
        for each in own
        for rule in each["spec"].get("rules", ())
        for match in rule.get("matches", ())
    ]
    models = spec["driver"]["simulated"]["models"]
    log = Path(report["simulator"]["log"]).read_text(errors="replace")
    ports = ADMIN_LINE.findall(log)
    expect(bool(ports), f"the simulator of {name} names no admin port")
    return SmokePool(
        name=name,
        models=models,
        names=list(dict.fromkeys([*models, *aliases])),
        objects=own,
        fail_open=spec.get("endpointPickerRef", {}).get("failureMode") == "FailOpen",
        replicas=spec["driver"]["simulated"]["replicas"],
        metrics_port=report["ports"]["metrics"],
        simulator_admin_port=int(ports[-1]),
    )


async def picker_pid(machine: Machine, pool: str) -> int | None:
    """Process id of a pool's picker while it runs."""
    report = (await machine.reports()).get(pool, {})
    pid = (report.get("picker") or {}).get("pid")
    return None if pid is None else int(pid)


async def until_ready(smoke: Smoke, pool: str, endpoints: int) -> float:
    """Wait until a pool's picker serves so many fresh endpoints."""

    async def is_so() -> bool:
        with contextlib.suppress(ApiError):
            report = (await smoke.machine.reports()).get(pool, {})
            seen = report.get("endpoints") or {}
            return report.get("state") == "ready" and seen.get("fresh") == endpoints
        return False

    return await until(is_so, f"{pool} is ready with {endpoints} endpoints", READY_WITHIN_S)


class Traffic:
    """Requests at a constant rate, and what became of them."""

    def __init__(self) -> None:
        self.answered = 0
        self.failures: list[str] = []

    def told(self) -> str:
        """What became of all. `CheckError` unless every request was answered well."""
        count = len(self.failures)
        expect(not count, f"{count} of {count + self.answered} requests failed: {self.failures[:3]}")
        return f"{self.answered} requests, 0 failed"


@contextlib.asynccontextmanager
async def traffic(smoke: Smoke, model: str, per_second: float) -> AsyncIterator[Traffic]:
    """Send requests while the block runs, each at its time whatever became of the ones before."""
    found = Traffic()
    running: set[asyncio.Task[None]] = set()

    async def one() -> None:
        try:
            status, body = await smoke.ask(model)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            found.failures.append(repr(error))
            return
        if status == 200:
            found.answered += 1
        else:
            found.failures.append(f"{status} {str(body)[:200]}")

    async def send() -> None:
        due = time.monotonic()
        while True:
            task = asyncio.create_task(one())
            running.add(task)
            task.add_done_callback(running.discard)
            due += 1 / per_second
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    sender = asyncio.create_task(send())
    try:
        yield found
    finally:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
        await asyncio.gather(*running)
