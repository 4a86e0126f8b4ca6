"""What is shown of a running machine, with and without its control plane."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from cli.machine.api import ApiError
from cli.machine.machine import is_fresh, troubles
from cli.machine.view import AWAY, SHUT_OUT, MachineView, restarts_of
from cli.terminal import Line

REPORT: dict[str, Any] = {
    "state": "starting",
    "ports": None,
    "picker": {"restarts": 2},
    "simulator": {"restarts": 1},
    "problems": ["port 9002 is in use"],
}


class Machine:
    """Reports as it is told to."""

    def __init__(self) -> None:
        self.reported: dict[str, Any] | None = {"small": REPORT}
        self.failure = ApiError("away")
        self.session = None
        self.children = {
            "web": SimpleNamespace(pid=12, restarts=0),
            "envoy": SimpleNamespace(pid=None, restarts=3),
        }

    async def reports(self) -> dict[str, Any]:
        if self.reported is None:
            raise self.failure
        return self.reported


def drawn(view: MachineView) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=80)
    console.print(view.table())
    return [line.split() for line in console.file.getvalue().splitlines()]


async def test_parts_and_pools_are_shown_and_what_is_down_is_marked():
    view = MachineView(Machine())
    await view.look()
    rows = drawn(view)
    assert ["web", "12", "0"] in rows
    assert ["envoy", "down", "3"] in rows
    assert ["small", "down", "0", "0", "0", "0", "-", "-", "3"] in rows
    assert view.lines() == [Line("small", "small: its picker does not answer", (False, 0))]


async def test_without_the_control_plane_the_last_known_pools_are_shown():
    machine = Machine()
    view = MachineView(machine)
    await view.look()
    machine.reported = None
    await view.look()
    assert view.lines()[0] == Line("", AWAY, AWAY)
    assert ["small", "down", "0", "0", "0", "0", "-", "-", "3"] in drawn(view)
    machine.failure = ApiError("the token is not known", 401)
    await view.look()
    assert view.lines()[0] == Line("", SHUT_OUT, SHUT_OUT)
    machine.reported = {}
    await view.look()
    assert view.lines() == []


def test_restarts_are_those_of_all_processes_there_are():
    assert restarts_of(REPORT) == 3
    assert restarts_of({"picker": None}) == 0


def test_a_pool_s_troubles_are_its_problems_or_its_state():
    assert troubles(REPORT) == "port 9002 is in use"
    assert troubles({"state": "starting", "problems": []}) == "starting"
    assert troubles({}) == "the fleet runner says nothing of it"


def test_a_report_of_an_earlier_runner_does_not_count():
    def reply(status: int = 200, runner: str = "host:12", *, stale: bool = False) -> Any:
        return SimpleNamespace(status=status, body={"runner": runner, "stale": stale})

    assert is_fresh(reply(), ":12")
    assert not is_fresh(reply(runner="host:112"), ":12")
    assert not is_fresh(reply(stale=True), ":12")
    assert not is_fresh(reply(404), ":12")
