"""Runs an Envoy of a gateway on this machine, and keeps what it needs to start without a control plane.

Envoy keeps nothing on disk. So beside it a second subscription keeps the whole gateway as one configuration
in a file, replaced with every change. Envoy is started towards the control plane when that answers, or when
there is no such file; otherwise from the file, and started anew towards the control plane once that is back.
Everything runs on the event loop's thread; nothing here needs the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controlplane.xds.envoy.bootstrap import (
    ControlPlaneAddress,
    EnvoyIdentity,
    bootstrap,
    without_control_plane,
)
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
ANSWER_S: Final = 3.0
"""How long the control plane may take to answer before Envoy starts from the file."""
LOOK_S: Final = 0.5
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
        node = Node(f"{options.envoy.node_id}-keeper", name)
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
                await self._run_once(from_file=not self._client.connected and self._last_good.exists())
                await asyncio.sleep(AGAIN_S)
        finally:
            await self._client.stop()

    async def _run_once(self, *, from_file: bool) -> None:
        """One Envoy, until it ends or should be another one."""
        options = self._options
        if from_file:
            static = json.loads(await aside(self._last_good.read_bytes))
            document = without_control_plane(options.envoy, static)
        else:
            document = bootstrap_of(options)
        file = options.folder / BOOTSTRAP
        await aside(lambda: write_private(file, json.dumps(document).encode()))
        child = Child("envoy", options.command(file), options.folder, self._say)
        try:
            await child.start()
            where = f"{self._last_good}, as the control plane is away" if from_file else "the control plane"
            self._say(f"Envoy of gateway {options.envoy.gateway} runs by {where}")
            while not child.failed.done():
                await asyncio.sleep(LOOK_S)
                if from_file and self._client.connected:
                    self._say("the control plane is back: Envoy is started anew")
                    return
            self._say(f"{child.failed.result()}\n{child.tail()}")
        finally:
            await child.stop()

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


def write_private(path: Path, data: bytes) -> None:
    """Replace a file that its owner alone may read."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(draft, path)
