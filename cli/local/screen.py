"""What the user of `pointsman up` sees: progress, a status table, and what to try.

On a terminal the table is redrawn in place once a second; elsewhere there are plain lines. A pool gets one at
once when its picker stops or starts to answer or its number of endpoints changes, and otherwise at most every
30 s and only when its figures have moved, so that a log of a quiet night stays short.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol, TextIO

from rich.box import SIMPLE
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from cli.local.gateway import Gateway
from cli.local.metrics import PoolStatus, pool_status, scrape
from cli.local.plan import Plan
from cli.local.tries import tries

REFRESH_S = 1.0
PLAIN_EVERY_S = 30.0

HEADINGS = ("endp.", "requests", "/s", "run.", "errors", "hits", "p50 ms", "rest.")
"""Short, so that the table fits into 80 columns: endpoints, requests in all and per second, running, errors,
prefix hits, median time of a decision, restarts."""
POOL_WIDTH = 21


class Screen(Protocol):
    """Where everything is said."""

    def say(self, text: str) -> None:
        """Tell one event."""
        ...

    def busy(self, what: str) -> None:
        """Tell what is being waited for; nothing when empty."""
        ...

    def introduce(self, plan: Plan) -> None:
        """Say where the gateway is and what to try."""
        ...

    async def watch(self, gateway: Gateway) -> None:
        """Show the state of the pools until cancelled."""
        ...


async def statuses(gateway: Gateway) -> list[PoolStatus]:
    """Ask every picker how its pool is."""
    pools = gateway.plan.pools
    samples = await asyncio.gather(*(scrape(gateway.session, pool) for pool in pools))
    return [pool_status(pool, each) for pool, each in zip(pools, samples, strict=True)]


class PlainScreen:
    """Lines of text with the time in front."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, text: str) -> None:
        """Write one line."""
        self._stream.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        self._stream.flush()

    def busy(self, what: str) -> None:
        """Say nothing: the line that it is ready will do."""

    def introduce(self, plan: Plan) -> None:
        """List the addresses and the commands."""
        lines = [f"{line}\n" for what, command in tries(plan) for line in (f"# {what}", command)]
        self._stream.write(f"\n{addresses(plan)}\n\n{''.join(lines)}\n")
        self._stream.flush()

    async def watch(self, gateway: Gateway) -> None:
        """Write a pool's line when it is due."""
        due = {pool.name: PoolLine() for pool in gateway.plan.pools}
        while True:
            for status in await statuses(gateway):
                if due[status.name].is_due(status, time.monotonic()):
                    self.say(summary(status))
            await asyncio.sleep(REFRESH_S)


class PoolLine:
    """Decides when the plain line of one pool is due."""

    def __init__(self) -> None:
        self._shown: PoolStatus | None = None
        self._shown_at_s = 0.0

    def is_due(self, status: PoolStatus, now_s: float) -> bool:
        """Tell whether to show a status now; if so, it counts as shown."""
        shown = self._shown
        if shown is not None:
            at_once = (status.is_up, status.endpoints) != (shown.is_up, shown.endpoints)
            moved = summary(status) != summary(shown)
            if not at_once and not (moved and now_s - self._shown_at_s >= PLAIN_EVERY_S):
                return False
        self._shown, self._shown_at_s = status, now_s
        return True


class LiveScreen:
    """A terminal: events scroll by, the table stays below them."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._spinner = self._console.status("")

    def say(self, text: str) -> None:
        """Print one event above the table."""
        ready, _, rest = text.partition("ready: ")
        shown = f"[green]✓[/] {escape(rest)}" if rest and not ready else escape(text)
        self._console.print(f"[dim]{time.strftime('%H:%M:%S')}[/] {shown}", soft_wrap=True)

    def busy(self, what: str) -> None:
        """Turn a spinner below the lines."""
        if what:
            self._spinner.update(f"waiting for: {escape(what)}")
            self._spinner.start()
        else:
            self._spinner.stop()

    def introduce(self, plan: Plan) -> None:
        """Print the addresses and the commands."""
        self._console.print(f"\n{escape(addresses(plan))}\n", soft_wrap=True)
        for what, command in tries(plan):
            self._console.print(f"[dim]# {escape(what)}[/]", soft_wrap=True)
            self._console.print(escape(command), soft_wrap=True)
        self._console.print()

    async def watch(self, gateway: Gateway) -> None:
        """Redraw the table every second."""
        before: list[PoolStatus] = []
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                current = await statuses(gateway)
                live.update(table(current, before, gateway), refresh=True)
                before = current
                await asyncio.sleep(REFRESH_S)


def addresses(plan: Plan) -> str:
    """Say where everything is."""
    pickers = "\n".join(
        f"  picker of {pool.name}: http://127.0.0.1:{pool.metrics_port}/metrics and /debug/decisions"
        for pool in plan.pools
    )
    return (
        f"gateway: {plan.url}\n{pickers}\n  Envoy's admin: http://127.0.0.1:{plan.admin_port}\n"
        f"  logs: {plan.logs}\nCtrl-C stops everything."
    )


def summary(status: PoolStatus) -> str:
    """One pool in one line."""
    if not status.is_up:
        return f"{status.name}: its picker does not answer"
    return (
        f"{status.name}: {status.endpoints} endpoints, {status.requests} requests, {status.running} running, "
        f"{status.errors} errors, prefix hits {percent(status.hit_ratio)}, "
        f"decision p50 {milliseconds(status.decision_p50_s)}"
    )


def table(current: Sequence[PoolStatus], before: Sequence[PoolStatus], gateway: Gateway) -> Table:
    """All pools in a table."""
    earlier = {status.name: status.requests for status in before}
    grid = Table(title="pools", title_justify="left", title_style="bold", box=SIMPLE, padding=(0, 1, 0, 0))
    grid.add_column("pool", no_wrap=True, max_width=POOL_WIDTH)
    for heading in HEADINGS:
        grid.add_column(heading, justify="right", no_wrap=True)
    for status in current:
        restarts = sum(gateway.children[f"{part}-{status.name}"].restarts for part in ("sim", "epp"))
        rate = max(0, status.requests - earlier.get(status.name, status.requests)) / REFRESH_S
        grid.add_row(
            escape(status.name),
            str(status.endpoints) if status.is_up else "[red]down[/]",
            str(status.requests),
            f"{rate:.0f}",
            str(status.running),
            str(status.errors),
            percent(status.hit_ratio),
            "-" if status.decision_p50_s is None else f"{status.decision_p50_s * 1000:.2f}",
            str(restarts),
        )
    return grid


def percent(share: float | None) -> str:
    """Format a share of one."""
    return "-" if share is None else f"{share:.0%}"


def milliseconds(seconds: float | None) -> str:
    """Format a short time."""
    return "-" if seconds is None else f"{seconds * 1000:.2f} ms"
