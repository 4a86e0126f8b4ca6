"""A revision that a picker refuses stops at the canary, while the picker serves; then the way back."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dataplane.xds.client import FATAL
from tests.controlplane.fleet.test_processes import (
    CONFIG,
    POOL,
    Fleet,
    controlled,
    is_ready,
    picked,
    running,
    runs,
    stage,
)
from tests.support.controlplane_command import Command
from tests.support.plugin_packages import install, install_project
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "docs/examples/plugin-package"
FOREIGN = CONFIG.replace("[{type: queue-scorer}]", "[{type: queue-scorer}, {type: label-cost-scorer}]")
DEADLY = """
import os
from typing import ClassVar

from dataplane.plugin.base import PluginInfo
from example_cost_scorer import LabelCostParams, LabelCostScorer


class DeadlyScorer(LabelCostScorer):
    info: ClassVar = PluginInfo("deadly-scorer", LabelCostParams)

    def __init__(self, name, params, handle):
        super().__init__(name, params, handle)
        if "DEADLY" in os.environ:
            os._exit(9)
"""
CANARY = "pointsman.dev/rollout: '1', pointsman.dev/pools"


class Traffic:
    """Requests one after another, on a thread of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.destinations: set[str] = set()
        self.failures: list[str] = []

    def _send(self) -> None:
        while not self._ended.is_set():
            try:
                self.destinations.add(asyncio.run(picked(self._port)))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what the test must show
                self.failures.append(repr(error))

    @contextmanager
    def flows(self) -> Iterator[None]:
        """While the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()


def rollout(fleet: Fleet) -> dict[str, Any]:
    """The newest, with its workers."""
    found: dict[str, Any] = fleet.request("endpointpickerconfigs/chat/rollout")
    return found


def installs(folder: Path, *commands: Command) -> Path:
    """A folder with the plugins of the example, for these commands."""
    installed = folder / "installed"
    installed.mkdir()
    install_project(EXAMPLE, installed)
    for command in commands:
        paths = [str(installed), command.environment.get("PYTHONPATH", "")]
        command.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return installed


def test_a_plugin_that_the_picker_does_not_have_stops_at_the_canary(tmp_path: Path) -> None:
    command, beside_pickers = Command(tmp_path), Command(tmp_path)
    installs(tmp_path, command)
    with controlled(command, tmp_path) as xds:
        for name in ("POINTSMAN_URL", "POINTSMAN_TOKEN"):
            beside_pickers.environment[name] = command.environment[name]
        with running(beside_pickers, tmp_path / "fleet.log", xds) as fleet:
            command.says("apply", "-", text=POOL + "---" + CONFIG)
            report = fleet.report(is_ready)
            wait_until(lambda: runs(report).startswith("chat/1@") and stage(fleet) == "complete")
            addresses = {row["address"] for row in report["endpoints"]["items"]}
            before = runs(report)
            traffic = Traffic(report["ports"]["grpc"])
            with traffic.flows():
                command.says("apply", "-", text=FOREIGN.replace("pointsman.dev/pools", CANARY))
                wait_until(lambda: stage(fleet) == "halted")
                halted = rollout(fleet)
                assert (halted["revision"], halted["active"], halted["canary"]) == (2, 1, "1")
                (worker,) = halted["workers"]
                assert (worker["worker"], worker["outcome"], worker["applied"]) == ("llama", "rejected", 1)
                (problem,) = worker["problems"]
                assert problem["path"].startswith("plugins[1]")
                assert "label-cost-scorer" in problem["message"]
                (shown,) = fleet.request("workers?pool=llama")["items"]
                nacks = [each["problems"] for each in shown["types"] if each["outcome"] == "nack"]
                assert nacks == [[problem]]
                assert runs(report) == before

                command.says("rollout", "back", "chat")
                wait_until(lambda: stage(fleet) == "complete")
                wait_until(lambda: runs(report).startswith("chat/3@"))
            assert runs(report).rpartition("@")[2] == before.rpartition("@")[2]
            assert traffic.failures == []
            assert traffic.destinations <= addresses
            assert traffic.destinations
            again = fleet.report(is_ready)
            assert (again["picker"]["pid"], again["picker"]["restarts"]) == (report["picker"]["pid"], 0)


def test_a_revision_over_which_the_picker_ends_is_refused_when_it_is_back(tmp_path: Path) -> None:
    command = Command(tmp_path)
    installed = installs(tmp_path, command)
    install(installed, "deadly", "1.0", {"deadly-scorer": "deadly:DeadlyScorer"}, {"deadly": DEADLY})
    with controlled(command, tmp_path) as xds:
        command.environment["DEADLY"] = "for pickers"
        fleet_log = tmp_path / "fleet.log"
        with running(command, fleet_log, xds) as fleet:
            del command.environment["DEADLY"]
            command.says("apply", "-", text=POOL + "---" + CONFIG)
            report = fleet.report(is_ready)
            wait_until(lambda: runs(report).startswith("chat/1@") and stage(fleet) == "complete")
            deadly = CONFIG.replace("[{type: queue-scorer}]", "[{type: queue-scorer}, {type: deadly-scorer}]")
            command.says("apply", "-", text=deadly.replace("pointsman.dev/pools", CANARY))
            wait_until(lambda: stage(fleet) == "halted")
            (worker,) = rollout(fleet)["workers"]
            assert (worker["outcome"], worker["applied"]) == ("rejected", 1)
            assert worker["problems"] == [{"path": "", "message": FATAL}]
            again = fleet.report(is_ready)
            assert again["picker"]["restarts"] == 1
            assert runs(again).startswith("chat/1@")
            assert asyncio.run(picked(again["ports"]["grpc"]))
