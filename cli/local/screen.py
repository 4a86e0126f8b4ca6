"""What the user of `pointsman up --config` sees of the pools: the table, the lines, the addresses."""

import asyncio
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from cli.local.gateway import Gateway
from cli.local.metrics import PoolStatus, pool_status, scrape
from cli.local.plan import Plan
from cli.terminal import REFRESH_S, Line

HEADINGS = ("endp.", "requests", "/s", "run.", "errors", "hits", "p50 ms", "rest.")
"""Short, so that the table fits into 80 columns: endpoints, requests in all and per second, running, errors,
prefix hits, median time of a decision, restarts."""
POOL_WIDTH = 21


class GatewayView:
    """The pools of a gateway, as often as somebody looks."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._before: list[PoolStatus] = []
        self._current: list[PoolStatus] = []

    async def look(self) -> None:
        """Ask every picker how its pool is."""
        pools = self._gateway.plan.pools
        samples = await asyncio.gather(*(scrape(self._gateway.session, pool) for pool in pools))
        found = [pool_status(pool, each) for pool, each in zip(pools, samples, strict=True)]
        self._before, self._current = self._current, found

    def lines(self) -> list[Line]:
        """One for each pool."""
        return [pool_line(status) for status in self._current]

    def table(self) -> Table:
        """All pools."""
        return pools_table(self._current, self._before, self._restarts())

    def _restarts(self) -> dict[str, int]:
        children = self._gateway.children
        return {
            pool.name: sum(children[f"{part}-{pool.name}"].restarts for part in ("sim", "epp"))
            for pool in self._gateway.plan.pools
        }


def pool_line(status: PoolStatus) -> Line:
    """What is told of a pool: at once when its picker goes or comes, or endpoints do."""
    return Line(status.name, summary(status), (status.is_up, status.endpoints))


def addresses(plan: Plan) -> str:
    """Say where everything is."""
    pickers = "\n".join(
        f"  picker of {pool.name}: http://127.0.0.1:{pool.metrics_port}/metrics and /debug/decisions"
        for pool in plan.pools
    )
    if plan.processor is not None:
        pickers += (
            f"\n  payload processor: http://127.0.0.1:{plan.processor.metrics_port}/metrics and /debug/config"
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


def pools_table(
    current: Sequence[PoolStatus], before: Sequence[PoolStatus], restarts: Mapping[str, int]
) -> Table:
    """All pools in a table; ``restarts`` of each pool's processes together."""
    earlier = {status.name: status.requests for status in before}
    grid = Table(title="pools", title_justify="left", title_style="bold", box=SIMPLE, padding=(0, 1, 0, 0))
    grid.add_column("pool", no_wrap=True, max_width=POOL_WIDTH)
    for heading in HEADINGS:
        grid.add_column(heading, justify="right", no_wrap=True)
    for status in current:
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
            str(restarts.get(status.name, 0)),
        )
    return grid


def percent(share: float | None) -> str:
    """Format a share of one."""
    return "-" if share is None else f"{share:.0%}"


def milliseconds(seconds: float | None) -> str:
    """Format a short time."""
    return "-" if seconds is None else f"{seconds * 1000:.2f} ms"
