"""From documents to answered requests through a real Envoy that the control plane tells everything."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from controlplane.xds.nodes import LISTENER
from dataplane.processes.ports import LOOPBACK
from tests.support.controlplane_command import Command, serving
from tests.support.waiting import PATIENCE_S, wait_until

MOST_RESETS: Final = 5
"""Connections in a row that a listener which closes may reset, on a busy machine."""

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


def pool(name: str, *models: str) -> dict[str, Any]:
    return {
        "apiVersion": "pointsman.dev/v1",
        "kind": "InferencePool",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "targetPorts": [{"number": 8000}],
            "driver": {
                "type": "local",
                "simulated": {"replicas": 2, "profile": "instant", "models": list(models)},
            },
        },
    }


def gateway(port: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "pointsman.dev/v1",
        "kind": "Gateway",
        "metadata": {"name": "public"},
        "spec": {"listener": {"port": port}, "accessLog": "/dev/null", **spec},
    }


class Plant:
    """All processes of one machine."""

    def __init__(self, folder: Path, command: Command) -> None:
        self.folder, self.command = folder, command
        self.port, self.admin = command.ports(0, "listener"), command.ports(0, "admin")
        self.token = folder / "token"
        self.token.write_text(command.worker_token("edge", "envoy", gateway="public"))
        self.xds_port = str(command.ports(0, "xds"))

    @contextmanager
    def process(self, name: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "cli.main", "controlplane", *words],
                env=self.command.environment,
                stdout=output,
                stderr=output,
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
                process.wait()

    def envoy(self, *identity: str) -> Any:
        return self.process(
            "gateway",
            *("run-gateway", "public", "--xds-server", f"{LOOPBACK}:{self.xds_port}"),
            *(identity or ("--xds-token-file", str(self.token))),
            *("--node-id", "envoy-1"),
            *("--admin-port", str(self.admin), "--state-dir", str(self.folder / "gateway")),
        )

    def xds(self, *flags: str) -> Any:
        return self.command.serves(self.folder / "xds.log", "serve-xds", *flags, port=self.xds_port)

    def apply(self, *documents: dict[str, Any]) -> None:
        self.api("apply", "POST", documents=documents)

    def api(
        self, path: str, method: str = "GET", version: int | None = None, documents: Sequence[Any] = ()
    ) -> Any:
        headers = {"Authorization": f"Bearer {self.command.environment['POINTSMAN_TOKEN']}"}
        if version is not None:
            headers["If-Match"] = f'"{version}"'
        url = f"{self.command.environment['POINTSMAN_URL']}/api/v1/{path}"
        data = json.dumps(documents).encode() if documents else None
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.loads(answer.read() or b"null")

    def delete(self, path: str) -> None:
        found = self.api(path)
        self.api(path, "DELETE", int(found["metadata"]["resourceVersion"]))

    def ask(self, model: str, port: int | None = None) -> tuple[int, dict[str, Any]]:
        """Status and body of a completion; (0, {}) while nobody listens."""
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{port or self.port}/v1/completions",
            data=json.dumps({"model": model, "prompt": "hello", "max_tokens": 3}).encode(),
            headers={"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        except (urllib.error.URLError, ConnectionError):
            return 0, {}

    def until(self, model: str, status: int, port: int | None = None) -> dict[str, Any]:
        wait_until(lambda: self.ask(model, port)[0] == status, self.logs)
        return self.ask(model, port)[1]

    def answer(self, holds: Callable[[dict[str, Any]], bool], type_url: str = LISTENER) -> dict[str, Any]:
        """The Envoy's last answer about listeners, or another type, once it is so."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            try:
                worker = self.api("workers/envoy-1")
            except urllib.error.HTTPError:
                return False
            found[:] = [each for each in worker["types"] if each["type"] == type_url and holds(each)]
            return bool(found)

        wait_until(look, self.logs)
        return found[0]

    def logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in self.folder.rglob("*.log"))


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    with serving(Command(tmp_path), tmp_path / "api.log") as command:
        yield Plant(tmp_path, command)


def test_a_gateway_follows_its_documents_refuses_what_it_cannot_do_and_outlives_the_control_plane(
    plant: Plant,
) -> None:
    with ExitStack() as fleet:
        fleet.enter_context(plant.process("fleet", "run-fleet"))
        with plant.xds(), plant.envoy():
            plant.apply(gateway(plant.port), pool("a", "llama"))
            assert plant.until("llama", 200)["model"] == "llama"
            assert plant.ask("qwen")[1]["error"]["code"] == "model_not_found"
            wait_until(lambda: plant.api("pools/a/endpoints?health=healthy")["total"] == 2, plant.logs)
            plant.apply(pool("b", "qwen"))
            plant.until("qwen", 200)
            good = plant.answer(lambda each: each["outcome"] == "ack")
            with socket.socket() as taken:
                taken.bind((LOOPBACK, 0))
                taken.listen()
                plant.apply(gateway(taken.getsockname()[1]))
                refused = plant.answer(lambda each: each["outcome"] == "nack")
            assert "Address already in use" in refused["message"]
            assert refused["inUse"] == good["version"]
            assert plant.ask("llama")[0] == 200
            plant.apply(gateway(plant.port))
            plant.delete("pools/b")
            assert plant.until("qwen", 404)["error"]["param"] == "model"
            assert plant.ask("llama")[0] == 200
            kept = plant.folder / "gateway" / "last-good.json"
            wait_until(lambda: b"qwen" not in kept.read_bytes(), plant.logs)
            assert kept.stat().st_mode & 0o777 == 0o600
        with plant.envoy():
            plant.until("llama", 200)
            assert plant.ask("qwen")[0] == 404
            seen: set[int] = set()

            def takes_over() -> bool:
                # The kernel resets connections that nobody has accepted when their listener is closed.
                # Whoever is reset connects again, as clients do, until it hits the listener that stays.
                attempts = (plant.ask("llama")[0] for _ in range(MOST_RESETS))
                seen.add(next(filter(None, attempts), 0))
                return plant.ask("gemma")[0] == 200

            with plant.xds():
                plant.apply(pool("c", "gemma"))
                wait_until(takes_over, plant.logs)
            assert seen == {200}
