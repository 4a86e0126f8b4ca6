"""What is shown of a running machine: its parts, and its pools as the fleet runner and their pickers tell."""

import asyncio
from typing import Any, NamedTuple

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from cli.local.metrics import PoolStatus, pool_status, scrape
from cli.local.screen import pool_line, pools_table
from cli.machine.api import ApiError
from cli.machine.machine import Machine
from cli.terminal import Line
from dataplane.processes.child import Child

MAX_POOLS_SHOWN = 30
AWAY = "the control plane does not answer; pools are shown as they were last known"
SHUT_OUT = (
    "this machine's token was taken back, so pools are shown as last known; the next start makes another"
)
UNAUTHORIZED = 401


class ShownPool(NamedTuple):
    """A pool's picker."""

    name: str
    metrics_port: int


class MachineView:
    """The state of things, as often as somebody looks."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._reports: dict[str, dict[str, Any]] = {}
        self._before: list[PoolStatus] = []
        self._current: list[PoolStatus] = []
        self._problem = ""

    async def look(self) -> None:
        """Ask the control plane what there is, and every picker how its pool is."""
        try:
            self._reports = await self._machine.reports()
            self._problem = ""
        except ApiError as error:
            self._problem = SHUT_OUT if error.status == UNAUTHORIZED else AWAY
        shown = dict(list(self._reports.items())[:MAX_POOLS_SHOWN])
        self._before, self._current = self._current, await asyncio.gather(*map(self._status, shown))

    async def _status(self, name: str) -> PoolStatus:
        ports = self._reports[name].get("ports")
        pool = ShownPool(name, ports["metrics"] if ports else 0)
        return pool_status(pool, await scrape(self._machine.session, pool) if ports else [])

    def lines(self) -> list[Line]:
        """The pools; what becomes of the parts is said when it happens."""
        away = [Line("", self._problem, self._problem)] if self._problem else []
        return [*away, *map(pool_line, self._current)]

    def table(self) -> RenderableType:
        """Parts above pools."""
        restarts = {name: restarts_of(report) for name, report in self._reports.items()}
        pools = pools_table(self._current, self._before, restarts)
        if self._problem:
            pools.caption = self._problem
        elif (beyond := len(self._reports) - len(self._current)) > 0:
            pools.caption = f"and {beyond} more"
        return Group(parts_table(self._machine.children), pools)


def restarts_of(report: dict[str, Any]) -> int:
    """Of a pool's processes together."""
    return sum(part["restarts"] for name in ("picker", "simulator") if (part := report.get(name)))


def parts_table(children: dict[str, Child]) -> Table:
    """What runs for all pools."""
    grid = Table(title="parts", title_justify="left", title_style="bold", box=SIMPLE, padding=(0, 1, 0, 0))
    grid.add_column("part", no_wrap=True)
    for heading in ("pid", "restarts"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for name, child in children.items():
        pid = "[red]down[/]" if child.pid is None else str(child.pid)
        grid.add_row(escape(name), pid, str(child.restarts))
    return grid
