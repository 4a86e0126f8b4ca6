"""Runs an Envoy of a gateway on this machine, and keeps what it needs to start without a control plane.

Envoy keeps nothing on disk. So beside it a second subscription keeps the whole gateway as one configuration
in a file, replaced with every change. Envoy is started towards the control plane when that answers, or when
there is no such file; otherwise from the file. Once the control plane is back another Envoy is started beside
it, on the same port, and when that listens the first one takes no more connections and ends.
Everything runs on the event loop's thread; nothing here needs the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from controlplane.xds.envoy.bootstrap import (
    LOOPBACK,
    ControlPlaneAddress,
    EnvoyIdentity,
    bootstrap,
    without_control_plane,
)
from controlplane.xds.nodes import keeper_of
from dataplane.addresses import split_host_port
from dataplane.aside import aside
from dataplane.errors import ConfigError
from dataplane.processes.child import Child, Say
from dataplane.xds.client import XdsClient
from dataplane.xds.codec import unwrapped
from dataplane.xds.messages import STATIC_GATEWAY, Node
from dataplane.xds.subscriber import Held, Subscriber
from dataplane.xds.transport import AdsStream, ServerAddress

LAST_GOOD: Final = "last-good.json"
BOOTSTRAP: Final = "bootstrap.json"
ALONE: Final = "alone.json"
ANSWER_S: Final = 3.0
"""How long the control plane may take to answer before Envoy starts from the file."""
LOOK_S: Final = 0.2
ADMIN_S: Final = 5.0
TAKE_OVER_S: Final = 30.0
"""How long a new Envoy may take until it listens."""
DRAIN_S: Final = 10.0
"""What requests under way have to finish when another Envoy takes over."""
AGAIN_S: Final = 0.5
"""Pause before an Envoy that has ended is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """What to run, and where."""

    envoy: EnvoyIdentity
    server: ServerAddress
    folder: Path
    command: Callable[[Path], Sequence[str | Path]]
    """Envoy's command line for a configuration file."""


def bootstrap_of(options: GatewayOptions) -> dict[str, object]:
    """The configuration towards the control plane. ``ConfigError`` when the address or a file is no good."""
    server = options.server
    server.check()
    host, port = split_host_port(server.target)
    token = dict(server.metadata()).get("authorization", "").removeprefix("Bearer ")
    address = ControlPlaneAddress(
        host=host,
        port=port,
        token=token,
        ca_file=server.ca_file,
        cert_file=server.cert_file,
        key_file=server.key_file,
    )
    return bootstrap(options.envoy, address)


class GatewayRunner:
    """Owns one Envoy and the file it may start from. ``run`` ends when it is cancelled."""

    def __init__(self, options: GatewayOptions, say: Say) -> None:
        self._options = options
        self._say = say
        self._last_good = options.folder / LAST_GOOD
        name = options.envoy.gateway
        node = Node(keeper_of(options.envoy.node_id), name)
        self._client = XdsClient(
            Subscriber(node, {STATIC_GATEWAY: (name,)}),
            lambda: AdsStream.open(options.server),
            self._judge,
            None,
            rng=random.SystemRandom(),
        )

    async def run(self) -> None:
        """For ever."""
        self._options.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._client.start()
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._client.heard.wait(), ANSWER_S)
                if not self._client.connected and self._last_good.exists():
                    await self._run_from_file()
                else:
                    await self._run_connected()
                await asyncio.sleep(AGAIN_S)
        finally:
            await self._client.stop()

    async def _run_connected(self, before: Child | None = None, admin: str = "") -> None:
        """An Envoy that its control plane tells everything, until it ends.

        It takes over from ``before``, which tells how it fares at the socket ``admin``.
        """
        child = await self._start("envoy", BOOTSTRAP, bootstrap_of(self._options))
        try:
            self._say(f"Envoy of gateway {self._options.envoy.gateway} runs by the control plane")
            if before is not None:
                await self._hand_over(child, admin)
                await before.stop()
            await asyncio.wait((child.failed,))
            self._say(f"{child.failed.result()}\n{child.tail()}")
        finally:
            await child.stop()

    async def _run_from_file(self) -> None:
        """An Envoy that knows everything, until it ends or the control plane is back."""
        with tempfile.TemporaryDirectory(prefix="pointsman-") as folder:  # paths of sockets must be short
            await self._run_alone(f"{folder}/admin")

    async def _run_alone(self, admin: str) -> None:
        static = json.loads(await aside(self._last_good.read_bytes))
        child = await self._start(
            "envoy-alone", ALONE, without_control_plane(self._options.envoy, static, admin)
        )
        try:
            self._say(f"the control plane is away: Envoy runs by {self._last_good}")
            while not child.failed.done():
                await asyncio.sleep(LOOK_S)
                if self._client.connected:
                    await self._run_connected(child, admin)
                    return
            self._say(f"{child.failed.result()}\n{child.tail()}")
        finally:
            await child.stop()

    async def _start(self, name: str, file: str, document: Mapping[str, object]) -> Child:
        path = self._options.folder / file
        await aside(lambda: write_private(path, json.dumps(document).encode()))
        child = Child(name, self._options.command(path), self._options.folder, self._say)
        await child.start()
        return child

    async def _hand_over(self, child: Child, admin: str) -> None:
        """Once the new Envoy listens, have the other take no more connections and finish its requests."""
        socket = aiohttp.UnixConnector(admin)
        timeout = aiohttp.ClientTimeout(total=ADMIN_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as new,
            aiohttp.ClientSession(connector=socket, timeout=timeout) as old,
        ):
            ready = f"http://{LOOPBACK}:{self._options.envoy.admin_port}/listeners"
            await _until(lambda: _says(new, ready, "public"), child, TAKE_OVER_S)
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                await old.post("http://envoy/drain_listeners")
            idle = "http://envoy/stats?filter=^http.public.downstream_rq_active$"
            await _until(lambda: _says(old, idle, "active: 0"), child, DRAIN_S)

    async def _judge(self, type_url: str, held: Held) -> Sequence[ConfigError]:
        """Put a set into the file; a gateway that is gone takes it along."""
        if not held.resources:
            await aside(lambda: self._last_good.unlink(missing_ok=True))
            return ()
        try:
            payload = unwrapped(held.resources[0].value)
            if not isinstance(json.loads(payload), dict):
                return [ConfigError("is no configuration", path=self._options.envoy.gateway)]
            await aside(lambda: write_private(self._last_good, payload))
        except (ConfigError, ValueError, OSError) as error:
            return [ConfigError(str(error), path=self._options.envoy.gateway)]
        return ()


async def _until(holds: Callable[[], Awaitable[bool]], child: Child, longest_s: float) -> None:
    """Wait until something holds, the process has ended, or the time is up."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(longest_s):
            while not child.failed.done() and not await holds():  # noqa: ASYNC110 - of another process
                await asyncio.sleep(LOOK_S)


async def _says(session: aiohttp.ClientSession, url: str, text: str) -> bool:
    try:
        async with session.get(url) as answer:
            return text in await answer.text()
    except (aiohttp.ClientError, TimeoutError):
        return False


def write_private(path: Path, data: bytes) -> None:
    """Replace a file that its owner alone may read."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(draft, path)
