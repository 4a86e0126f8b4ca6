"""The whole product on one machine: every process started in order, awaited, watched and stopped.

    Valkey          answers; at the same time the database is brought up to date
    web             answers the token of this machine
    xds             listens
    tasks, fleet    run
    examples        applied through the API, on a fresh database only
    ipp             ready, where the gateway has a payload processor
    pools           the fleet reports a picker that is ready, for each
    Envoy           has been sent its listener, and answers

What runs on the data plane is decided by what the control plane holds, so a pool that does not get ready is
told and fails nothing. A part that ends before all are ready fails the start; later ones are restarted.
"""

import asyncio
import contextlib
import shutil
import time
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import aiohttp

from cli import profile
from cli.local.supervisor import Supervisor
from cli.machine import seeds, valkey
from cli.machine.api import Api, ApiError, Reply, answers
from cli.machine.database import set_up
from cli.machine.gateway import GATEWAY, GatewayPlace, command, place, processor_command
from cli.machine.layout import Layout
from cli.profile import Profile
from dataplane.files import write_for_owner
from dataplane.processes.child import Say, StartError
from dataplane.processes.command import POINTSMAN
from dataplane.processes.log_files import CHECK_EVERY_S, trim_folder
from dataplane.processes.ports import PortChooser

POOLS_READY_S: Final = 120.0
POLL_S: Final = 0.2


class Once(NamedTuple):
    """Secrets that are shown this time and never again."""

    administrator: str
    password: str | None
    keys: dict[str, str]
    """Name -> key."""


class Machine:
    """All processes of one run. Use as an asynchronous context manager: leaving it stops everything."""

    def __init__(
        self,
        layout: Layout,
        examples: Path,
        say: Say,
        busy: Say = lambda _: None,
        *,
        choose: PortChooser,
        port: int | None = None,
    ) -> None:
        """``port`` is the gateway's, 0 = a free one; None = that of its document."""
        self.layout = layout
        self.gateway: GatewayPlace | None = None
        self.once = Once("", None, {})
        self._choose = choose
        self._port = port
        self._examples = examples
        self._say = say
        self._processes = Supervisor(layout.logs, say, busy)
        self.children = self._processes.children
        self._background: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        self.api = Api(self.session, self.layout.web)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        # Nobody is sent to a part that is going away.
        await self._processes.stop(["gateway"], ["ipp", "tasks", "web", "xds", "fleet"])
        await self.session.close()

    async def hold(self, *names: str) -> None:
        """Kill parts, and start them again only when they are released."""
        await self._processes.hold(*names)

    async def release(self, *names: str) -> None:
        """Start parts that were held."""
        await self._processes.release(*names)

    def kill(self) -> None:
        """End every process at once."""
        self._processes.kill()

    async def start(self) -> None:
        """Start everything and return when it is ready. Raises `StartError`."""
        step = self._processes.step
        self._prepare()
        await self._start_valkey()
        await step("database", self._set_up())
        controlplane = (*POINTSMAN, "controlplane")
        await self._launch("web", *controlplane, "serve", "--port", str(self.layout.web_port))
        ports = ("--port", str(self.layout.xds_port), "--metrics-port", str(self.layout.xds_metrics_port))
        await self._launch("xds", *controlplane, "serve-xds", *ports)
        await self._launch("tasks", *controlplane, "run-tasks")
        await step("control plane", self._processes.until(lambda: answers(self.api), "web"))
        await step("xDS", self._processes.until(self._listens, "xds"))
        if self.layout.seeds.exists():
            await step("examples", self._apply_examples())
        await self._launch("fleet", *controlplane, "run-fleet", "--xds-server", self.layout.xds)
        await self._start_envoy()
        self._background.append(asyncio.create_task(self._keep_logs_small()))
        await step("pools", self._until_pools_are_ready())
        if self.gateway is not None:
            await step("gateway", self._processes.until(self._carries, "gateway"))
        self._processes.check()
        self._processes.all_ready()

    def _prepare(self) -> None:
        """Put the last run's logs aside."""
        layout = self.layout
        previous = layout.logs.with_name("logs.previous")
        if layout.logs.exists():
            shutil.rmtree(previous, ignore_errors=True)
            layout.logs.replace(previous)
        layout.logs.mkdir(parents=True)

    async def _launch(self, name: str, *command: str | Path) -> None:
        await self._processes.launch(name, command, self.layout.environment())

    async def _start_valkey(self) -> None:
        if self.layout.outside_valkey:
            if not await valkey.answers(self.layout):
                raise StartError("the Valkey server that VALKEY_URL names does not answer")
            return
        await self._launch("valkey", *valkey.command(self.layout))
        ready = self._processes.until(lambda: valkey.answers(self.layout), "valkey")
        await self._processes.step("Valkey", ready)

    async def _start_envoy(self) -> None:
        self.gateway = await place(self.api, self._choose, self._port)
        if self.gateway is None:
            self._say(f"there is no Gateway {GATEWAY}, so there is no Envoy; apply one and start again")
            return
        processor = self.gateway.processor
        if processor is not None:
            self.layout.processor.parent.mkdir(parents=True, exist_ok=True)
            await self._launch("ipp", *processor_command(self.layout, self.gateway, processor))
            ready = self._processes.until(lambda: processor.answers(self.session), "ipp")
            await self._processes.step("payload processor", ready)
        await self._launch("gateway", *command(self.layout, self.gateway))

    async def _carries(self) -> bool:
        """Whether the listener is there: Envoy has been sent everything once."""
        return self.gateway is not None and await self.gateway.answers(self.session)

    async def _set_up(self) -> None:
        """Bring the database up to date, and leave a profile for the commands of this machine."""
        known = None
        with contextlib.suppress(profile.UnusableError):  # another is written
            known = profile.read_file(self.layout.profile)
        found = await set_up(self.layout, known.token if known else "")
        self.api.token = found.token
        write_for_owner(self.layout.worker_token, found.worker_token)
        write_for_owner(self.layout.processor_token, found.processor_token)
        self.once = Once(found.administrator, found.password, {})
        profile.write(self.layout.profile, Profile(self.layout.web, self.api.token))

    async def _apply_examples(self) -> None:
        keys = await seeds.read_and_apply(self.api, self._examples)
        self.once = self.once._replace(keys=keys)
        self.layout.seeds.unlink()

    async def _listens(self) -> bool:
        try:
            async with self.session.get(f"{self.layout.xds_pages}/readyz") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _until_pools_are_ready(self) -> None:
        """Wait for what the control plane wants; whatever is not there in time is told."""
        ends = time.monotonic() + POOLS_READY_S
        while True:
            self._processes.check()
            with contextlib.suppress(ApiError):
                late = {
                    name: report for name, report in (await self.reports()).items() if not is_ready(report)
                }
                if not late:
                    return
                if time.monotonic() > ends:
                    for name, report in late.items():
                        self._say(f"{name} is not ready: {troubles(report)}")
                    return
            await asyncio.sleep(POLL_S)

    async def reports(self) -> dict[str, dict[str, Any]]:
        """Pool of the local driver -> what its runner says of it; empty when that is old. `ApiError`."""
        rows = await self.api.rows("pools?driver=local")
        names = [row["metadata"]["name"] for row in rows]
        found = await asyncio.gather(*(self.api.ask("GET", f"pools/{name}/status") for name in names))
        runner = f":{self.children['fleet'].pid}"
        return {
            name: reply.body["report"] if is_fresh(reply, runner) else {}
            for name, reply in zip(names, found, strict=True)
        }

    async def _keep_logs_small(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            for folder in (self.layout.logs, self.layout.gateway):
                with contextlib.suppress(OSError):  # the disk is full; the next look may find room
                    trim_folder(folder)


def is_fresh(reply: Reply, runner: str) -> bool:
    """Whether a status is that of the fleet runner whose name ends so, and not of one before."""
    return reply.status == 200 and not reply.body["stale"] and reply.body["runner"].endswith(runner)


def is_ready(report: dict[str, Any]) -> bool:
    """Whether a pool's picker serves."""
    return report.get("state") == "ready"


def troubles(report: dict[str, Any]) -> str:
    """Why a pool is not ready."""
    return (
        "; ".join(report.get("problems", ())) or report.get("state") or "the fleet runner says nothing of it"
    )
