"""From a document to an answered request and back, with every process real."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tests.support.black_box import METHOD, destination, refusal, request_body, request_headers
from tests.support.certificates import Authority
from tests.support.controlplane_command import Command, serving
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.integration

POOL = """
apiVersion: pointsman.dev/v1
kind: InferencePool
metadata: {name: llama}
spec:
  selector: {matchLabels: {app: vllm}}
  targetPorts: [{number: 8000}]
  driver: {type: local, simulated: {replicas: 2, profile: instant, models: [llama]}}
"""
OBJECTIVE = """
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: interactive}
spec: {poolRef: {name: llama}, priority: 10}
"""
ENDPOINTS = """
apiVersion: pointsman.dev/v1
kind: EndpointList
metadata: {name: rack-1}
spec: {poolRef: {name: llama}, endpoints: [{name: a, address: 127.0.0.9, port: 9}]}
"""


class Fleet:
    """The runner's process, and the API it is watched through."""

    def __init__(self, command: Command, log: Path, xds: str, *flags: str) -> None:
        self.command = command
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cli.main", "controlplane", "run-fleet", "--xds-server", xds, *flags],
                env=command.environment,
                stdout=output,
                stderr=output,
            )

    def request(self, path: str, method: str = "GET", version: int | None = None) -> Any:
        """One call of the API."""
        headers = {"Authorization": f"Bearer {self.command.environment['POINTSMAN_TOKEN']}"}
        if version is not None:
            headers["If-Match"] = f'"{version}"'
        url = f"{self.command.environment['POINTSMAN_URL']}/api/v1/{path}"
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers, method=method), timeout=PATIENCE_S
        ) as answer:
            return json.loads(answer.read() or b"null")

    def report(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The pool's report once it is so; the test's timeout is the limit."""
        while True:
            report = self.request("pools/llama/status")["report"]
            if report is not None and holds(report):
                return dict(report)
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.2)


@contextmanager
def controlled(command: Command, folder: Path, *flags: str) -> Iterator[str]:
    """A control plane that answers people and workers; where workers find it."""
    with serving(command, folder / "log"), command.serves(folder / "xds.log", "serve-xds", *flags) as xds:
        yield xds.address


@contextmanager
def running(command: Command, log: Path, xds: str, *flags: str) -> Iterator[Fleet]:
    fleet = Fleet(command, log, xds, *flags)
    try:
        yield fleet
    finally:
        fleet.process.terminate()
        assert fleet.process.wait(PATIENCE_S) == 0, log.read_text()


def is_ready(report: dict[str, Any]) -> bool:
    endpoints = report["endpoints"]
    return bool(report["state"] == "ready" and endpoints and endpoints["fresh"] >= 2)


def pids(report: dict[str, Any]) -> list[int]:
    return [report["picker"]["pid"], report["simulator"]["pid"]]


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def picked(port: int) -> str:
    """Where the picker at this port sends a request."""
    return destination((await conversation(port))[0])


async def asked_in_vain(port: int) -> int:
    """The status of a request for which no endpoint is allowed."""
    return refusal(await conversation(port, subset=[]))[0]


async def conversation(port: int, **hints: Any) -> list[Any]:
    """What the picker says to one request."""
    body = {"model": "llama", "prompt": "Which way?"}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method = channel.stream_stream(
            METHOD,
            request_serializer=pb.ProcessingRequest.SerializeToString,
            response_deserializer=pb.ProcessingResponse.FromString,
        )
        asked = iter((request_headers(), request_body(body, end=True, **hints)))
        return [answer async for answer in method(asked, timeout=PATIENCE_S)]


def answers_with_a_replica(report: dict[str, Any]) -> bool:
    addresses = [row["address"] for row in report["endpoints"]["items"]]
    return len(addresses) == 2 and asyncio.run(picked(report["ports"]["grpc"])) in addresses


def objects(report: dict[str, Any]) -> str:
    """The objectives that the picker has."""
    return page(report, "/debug/objects")


def page(report: dict[str, Any], path: str) -> str:
    """What the picker shows there."""
    url = f"http://127.0.0.1:{report['ports']['metrics']}{path}"
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def test_a_pool_is_run_as_the_database_says_until_it_is_deleted(tmp_path: Path) -> None:
    command = Command(tmp_path)
    with controlled(command, tmp_path) as xds, running(command, tmp_path / "fleet.log", xds) as fleet:
        command.says("apply", "-", text=POOL + OBJECTIVE)
        first = fleet.report(is_ready)
        assert first["problems"] == []
        assert answers_with_a_replica(first)
        assert first["picker"]["cpuSeconds"] > 0
        assert first["picker"]["memoryBytes"] > 1 << 20

        command.says("apply", "-", text=OBJECTIVE.replace("10", "77"))
        wait_until(lambda: '"priority": 77' in objects(first))
        command.says("apply", "-", text=ENDPOINTS)
        fleet.report(lambda report: report["endpoints"] is not None and report["endpoints"]["total"] == 3)
        fleet.request("endpointlists/rack-1", "DELETE", 1)
        fleet.report(lambda report: report["endpoints"] is not None and report["endpoints"]["total"] == 2)

        assert "state: ready" in command.says("get", "pools", "llama", "--status")
        assert "needs the name of one object" in command.refusal("get", "pools", "--status")

        os.kill(first["picker"]["pid"], signal.SIGKILL)
        second = fleet.report(lambda report: report["picker"]["restarts"] == 1 and is_ready(report))
        assert second["ports"] == first["ports"]
        assert second["picker"]["pid"] != first["picker"]["pid"]
        assert second["simulator"]["pid"] == first["simulator"]["pid"]
        assert answers_with_a_replica(second)
        assert '"priority": 77' in objects(second)

        fleet.request("objectives/interactive", "DELETE", 2)
        fleet.request("pools/llama", "DELETE", 1)
        wait_until(lambda: not any(map(is_running, pids(second))))
        wait_until(lambda: not (tmp_path / "state/fleet/pools/llama").exists())
        wait_until(lambda: "fleet-pickers/llama" in [each["name"] for each in deleted(fleet, "ApiToken")])


def deleted(fleet: Fleet, kind: str) -> list[Any]:
    """What the audit log has of deletions of a kind."""
    return [each for each in fleet.request(f"audit?kind={kind}")["items"] if each["action"] == "delete"]


def test_the_token_of_a_picker_is_in_no_command_line_environment_or_log(tmp_path: Path) -> None:
    command = Command(tmp_path)
    with controlled(command, tmp_path) as xds, running(command, tmp_path / "fleet.log", xds) as fleet:
        command.says("apply", "-", text=POOL)
        report = fleet.report(is_ready)
        folder = tmp_path / "state/fleet/pools/llama"
        token = (folder / "token").read_text()
        assert ((folder / "token").stat().st_mode & 0o777, token.startswith("pmt_")) == (0o600, True)
        for pid in pids(report):
            for name in ("cmdline", "environ"):
                assert token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        said = [page(report, "/debug/config"), page(report, "/debug/objects"), json.dumps(report)]
        said += [file.read_text(errors="replace") for file in tmp_path.rglob("*.log")]
        said.append((tmp_path / "state/fleet/wanted.json").read_text())
        assert not [text for text in said if token in text]
        (worker,) = fleet.request("workers?pool=llama")["items"]
        assert (worker["id"], worker["user"], worker["connected"]) == ("llama", "fleet-pickers", True)


def test_pickers_and_control_plane_show_one_another_certificates(tmp_path: Path) -> None:
    command, authority = Command(tmp_path), Authority(tmp_path)
    (server, server_key), (pickers, pickers_key) = authority.issue("server"), authority.issue("pickers")
    shown = ("--tls-cert", str(server), "--tls-key", str(server_key), "--client-ca", str(authority.file))
    trusted = ("--xds-ca", str(authority.file), "--xds-cert", str(pickers), "--xds-key", str(pickers_key))
    with (
        controlled(command, tmp_path, *shown) as xds,
        running(command, tmp_path / "fleet.log", xds, *trusted) as fleet,
    ):
        command.says("apply", "-", text=POOL + OBJECTIVE)
        report = fleet.report(is_ready)
        wait_until(lambda: '"priority": 10' in objects(report))
        (worker,) = fleet.request("workers?pool=llama")["items"]
        assert (worker["user"], worker["connected"]) == ("fleet-pickers", True)


CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
metadata: {name: chat, annotations: {pointsman.dev/pools: llama}}
plugins: [{type: queue-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer, weight: 3}]}]
"""


def test_rollouts_reach_pickers_and_what_they_refuse_changes_nothing(tmp_path: Path) -> None:
    command = Command(tmp_path)
    with controlled(command, tmp_path) as xds, running(command, tmp_path / "fleet.log", xds) as fleet:
        command.says("apply", "-", text=POOL)
        first = fleet.report(is_ready)
        command.says("apply", "-", text=CONFIG)
        wait_until(lambda: runs(first).startswith("chat/1@"))
        wait_until(lambda: stage(fleet) == "complete")

        heavier = CONFIG.replace("weight: 3", "weight: 5")
        by_hand = heavier.replace("{pointsman", "{pointsman.dev/rollout: manual, pointsman")
        command.says("apply", "-", text=by_hand)
        command.says(
            "rollout", "start", "chat", *["--canary", "1", "--max-error-share", "0.1", "--min-requests", "3"]
        )
        port = first["ports"]["grpc"]
        wait_until(lambda: asyncio.run(asked_in_vain(port)) == 503 and stage(fleet) == "halted")
        reason = fleet.request("endpointpickerconfigs/chat/rollout")["reason"]
        assert reason.endswith("requests failed (100.0%) at workers that run it; 10.0% is allowed")

        refused = CONFIG + "dataLayer: {discovery: {pluginRef: file-discovery}}\n"
        refused = refused.replace(
            "[{type: queue-scorer}]",
            "[{type: queue-scorer}, {type: file-discovery, parameters: {path: /nowhere}}]",
        )
        command.says("apply", "-", text=refused)
        wait_until(lambda: stage(fleet) == "halted")
        (worker,) = fleet.request("endpointpickerconfigs/chat/rollout")["workers"]
        assert (worker["worker"], worker["outcome"]) == ("llama", "rejected")
        assert worker["problems"] == [
            {"path": "--endpoints-file", "message": "excludes dataLayer.discovery of the configuration"}
        ]
        # The guard has stopped revision 2 where it runs already: what was applied is not taken back.
        assert runs(first).startswith("chat/2@")
        os.kill(first["picker"]["pid"], signal.SIGKILL)
        after = fleet.report(lambda report: report["picker"]["restarts"] == 1 and is_ready(report))
        assert runs(after).startswith("chat/2@")
        assert answers_with_a_replica(after)
        command.says("rollout", "back", "chat", "--revision", "1")
        wait_until(lambda: stage(fleet) == "complete")
        assert runs(after).startswith("chat/4@")


def runs(report: dict[str, Any]) -> str:
    """What the picker calls the configuration that it runs."""
    return str(json.loads(page(report, "/debug/config"))["reload"]["revision"])


def stage(fleet: Fleet) -> str:
    """How far the newest rollout is."""
    return str(fleet.request("endpointpickerconfigs/chat/rollout")["stage"])


def test_pickers_outlive_the_control_plane_start_without_it_and_end_with_their_runner(
    tmp_path: Path,
) -> None:
    command = Command(tmp_path)
    with ExitStack() as stack:
        with controlled(command, tmp_path) as xds:
            command.says("apply", "-", text=POOL + OBJECTIVE + "---" + CONFIG)
            fleet = stack.enter_context(running(command, tmp_path / "fleet.log", xds))
            report = fleet.report(is_ready)
            wait_until(lambda: runs(report).startswith("chat/1@") and '"priority": 10' in objects(report))
            wait_until(lambda: stage(fleet) == "complete")
        known = runs(report)
        assert all(map(is_running, pids(report)))
        assert answers_with_a_replica(report)

        # A picker that ends meanwhile starts with what it was sent last.
        ready = f"http://127.0.0.1:{report['ports']['metrics']}/readyz"
        os.kill(report["picker"]["pid"], signal.SIGKILL)
        wait_until(lambda: not is_running(report["picker"]["pid"]))
        wait_until(lambda: answers(ready))
        assert (runs(report), '"priority": 10' in objects(report)) == (known, True)
        assert answers_with_a_replica(report)
    wait_until(lambda: not answers(ready))
    assert fleet.log.read_text().endswith("fleet: everything is stopped\n")

    # A start without the database: the pool is there again, on the same ports, with the same token.
    token = (tmp_path / "state/fleet/pools/llama/token").read_text()
    database, nowhere = "DATABASE_URL", f"sqlite:///{tmp_path}/nowhere/database.sqlite3"
    command.environment[database] = nowhere
    with running(command, tmp_path / "second.log", xds) as again:
        wait_until(lambda: answers(ready))
        assert "the database refuses: unable to open database file" in again.log.read_text()
        assert (runs(report), '"priority": 10' in objects(report)) == (known, True)

        # The control plane is back, and what has changed meanwhile reaches the picker.
        del command.environment[database]
        port = xds.rpartition(":")[2]
        with (
            command.serves(tmp_path / "log", "serve") as web,
            command.serves(tmp_path / "xds.log", "serve-xds", port=port),
        ):
            command.environment["POINTSMAN_URL"] = web.address
            command.says("apply", "-", text=CONFIG.replace("weight: 3", "weight: 5"))
            wait_until(lambda: runs(report).startswith("chat/2@"))
            wait_until(lambda: stage(fleet) == "complete")
            (worker,) = fleet.request("workers?pool=llama")["items"]
            assert (worker["applied"]["revision"], worker["connected"]) == (2, True)
    assert (tmp_path / "state/fleet/pools/llama/token").read_text() == token


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
