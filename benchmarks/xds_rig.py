"""The control plane of the discovery benchmark, its documents, and subscriptions that stand for pickers."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.children import BenchError, Child
from controlplane.xds.envoy.bootstrap import ControlPlaneAddress, EnvoyIdentity, bootstrap
from dataplane.errors import ConfigError
from dataplane.processes.ports import LOOPBACK, Ports
from dataplane.xds.client import XdsClient
from dataplane.xds.codec import unwrapped
from dataplane.xds.messages import POOL_OBJECTS, Node
from dataplane.xds.subscriber import Held, Subscriber
from dataplane.xds.transport import AdsStream, ServerAddress

GATEWAY: Final = "bench"
CALL_S: Final = 60.0
OWN: Final = "pointsman.dev/v1"


def document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A document of ours."""
    return {"apiVersion": OWN, "kind": kind, "metadata": {"name": name}, "spec": spec}


def gateway(port: int) -> dict[str, Any]:
    """Reaches every pool."""
    return document("Gateway", GATEWAY, {"listener": {"port": port}, "accessLog": "/dev/null"})


def pool(name: str) -> dict[str, Any]:
    """Serves a model of its own name; nobody runs its picker."""
    spec = {"selector": {"matchLabels": {"app": name}}, "targetPorts": [{"number": 8000}], "models": [name]}
    return document("InferencePool", name, spec)


def endpoint_list(name: str, count: int) -> dict[str, Any]:
    """So many endpoints of a pool; nobody listens there."""
    entries = [
        {"name": f"{name}-{index}", "address": f"10.255.{index // 250}.{index % 250 + 1}"}
        for index in range(count)
    ]
    return document("EndpointList", name, {"poolRef": {"name": name}, "endpoints": entries})


def objective(name: str, pool_name: str) -> dict[str, Any]:
    """An objective of a pool."""
    return document("InferenceObjective", name, {"poolRef": {"name": pool_name}, "priority": 1})


class ControlPlane:
    """API and discovery server on a database of their own. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._environment = [
            f"POINTSMAN_STATE={folder / 'state'}",
            "DATABASE_URL=",
            "DJANGO_SETTINGS_MODULE=controlplane.settings",
        ]
        self.ports = Ports(random.SystemRandom())
        self._api, self._port = self.ports(0, "api"), self.ports(0, "xds")
        self._token_file = folder / "token"
        self.server = ServerAddress(target=f"{LOOPBACK}:{self._port}", token_file=str(self._token_file))

    def __enter__(self) -> Self:
        with self._stack:
            self._token = self._says("init").splitlines()[-1]
            self._says("user", "bench", "--role", "worker")
            self._token_file.write_text(self._says("token", "bench", "pickers"))
            self._envoy_token = self._says("token", "bench", "envoy", "--gateway", GATEWAY)
            self.api = self._stack.enter_context(self._child("serve", self._api))
            self.xds = self._stack.enter_context(self._child("serve-xds", self._port))
            for child, port in ((self.api, self._api), (self.xds, self._port)):
                child.wait_until(lambda port=port: _listens(port))  # type: ignore[misc]
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _words(self, *words: str) -> list[str]:
        return ["/usr/bin/env", *self._environment, sys.executable, "-m", "cli.main", "controlplane", *words]

    def _says(self, *words: str) -> str:
        done = subprocess.run(
            self._words(*words), check=False, capture_output=True, text=True, timeout=CALL_S, env=os.environ
        )
        if done.returncode != 0:
            raise BenchError(f"the control plane does not begin: {done.stderr.strip()}")
        return done.stdout.strip()

    def _child(self, command: str, port: int) -> Child:
        return Child(command, self._words(command, "--port", str(port)), self._folder)

    def bootstrap(self) -> dict[str, Any]:
        """What Envoy starts with."""
        return bootstrap(
            EnvoyIdentity(node_id="bench-envoy", gateway=GATEWAY, admin_port=0),
            ControlPlaneAddress(host=LOOPBACK, port=self._port, token=self._envoy_token),
        )

    async def apply(self, documents: Sequence[dict[str, Any]]) -> None:
        """One call of the API."""
        await asyncio.to_thread(self._apply, documents)

    def _apply(self, documents: Sequence[dict[str, Any]]) -> None:
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self._api}/api/v1/apply",
            data=json.dumps(documents).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=CALL_S) as answer:  # noqa: S310 - ours
                answer.read()
        except urllib.error.HTTPError as error:
            raise BenchError(f"the control plane refuses: {error.read()[:500].decode()}") from None

    def is_served(self, address: str, model: str) -> bool:
        """Whether the gateway at this address knows a model."""
        try:
            with urllib.request.urlopen(f"http://{address}/v1/models/{model}", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:
            return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


class Pickers:
    """One subscription per pool. An asynchronous context manager."""

    def __init__(self, pools: Sequence[str], server: ServerAddress) -> None:
        self._server = server
        self._said: dict[str, bytes] = {}
        self._clients = [self._client(name) for name in pools]

    def _client(self, pool_name: str) -> XdsClient:
        async def judge(type_url: str, held: Held) -> Sequence[ConfigError]:
            self._said[pool_name] = unwrapped(held.resources[0].value)
            return ()

        node = Node(f"picker-{pool_name}", pool_name)
        return XdsClient(
            Subscriber(node, {POOL_OBJECTS: (pool_name,)}),
            lambda: AdsStream.open(self._server),
            judge,
            None,
            rng=random.SystemRandom(),
        )

    async def __aenter__(self) -> Self:
        for client in self._clients:
            client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(client.stop() for client in self._clients))

    async def all_heard(self) -> bool:
        """Whether each has been sent its first set."""
        return len(self._said) == len(self._clients)

    def has(self, text: str) -> bool:
        """Whether this is in what each was sent last."""
        return all(text.encode() in said for said in self._said.values())
