"""The charts pages have, as data, with what they show before a browser draws anything.

Pages get their first numbers from here, and every number again when htmx asks for a table; lines are drawn by
the browser from the websocket (``static/console/charts.js``). Without it, pages show what was known when they
were made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib.staticfiles import finders

from controlplane.core.roles import Action, Actor
from controlplane.telemetry import columns
from controlplane.telemetry.api import TELEMETRY, known
from controlplane.telemetry.rings import WINDOW_S, Rings

NOTHING: Final = "\N{EN DASH}"
UPLOT: Final = "vendor/uplot.min.js"


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart."""

    key: str
    title: str
    unit: str
    lines: str
    """``metric:label`` of each line with ``|`` between; the first is the number beside the title."""
    scale: int = 1
    """Shown numbers are values times this."""
    digits: int = 0
    most: float = 1
    """Where the axis ends at least, in shown numbers."""
    of_five: str = "mean"
    """What is drawn of five seconds: their mean, or the ``most``."""
    now: str = ""

    @property
    def metric(self) -> str:
        """Of the first line."""
        return self.lines.partition(":")[0]

    def at(self, values: dict[str, float | None] | None) -> Chart:
        """With the number of this second."""
        return replace(self, now=self.text(values))

    def text(self, values: dict[str, float | None] | None) -> str:
        """The first line's number of a second; a dash when there is none."""
        value = None if values is None else values[self.metric]
        return NOTHING if value is None else f"{value * self.scale:,.{self.digits}f}"


OF_ALL: Final = (
    Chart("requests", "Requests", "/s", "requestsPerS:All pools", digits=1),
    Chart("ttft", "Time to first token, p95", "ms", "ttftP95:Slowest pool", scale=1000, of_five="most"),
    Chart("queue", "Waiting requests", "", "queue:All pools", of_five="most"),
    Chart("kv", "KV cache in use", "%", "kvUsage:Mean", scale=100, digits=1, most=10),
)
"""Of the overview: a line for all, and one for each of the busiest pools."""
OF_POOL: Final = (
    Chart("requests", "Requests", "/s", "requestsPerS:Requests|errorsPerS:Errors", digits=1),
    Chart("ttft", "Time to first token", "ms", "ttftP95:p95|ttftP50:p50", scale=1000, of_five="most"),
    Chart("queue", "Requests at model servers", "", "queue:Waiting|inflight:In flight", of_five="most"),
    Chart("kv", "KV cache in use", "%", "kvUsage:Mean of the endpoints", scale=100, digits=1, most=10),
)
"""Of a pool's page."""


def panel(actor: Actor, pool: str = "") -> dict[str, Any] | None:
    """What the charts' template needs, of one pool or of all; None for whoever may not look."""
    if not actor.may(Action.READ, TELEMETRY):
        return None
    rings = known()
    total = None if rings is None else columns.present(rings, pool)["total"]
    query = {"view": "charts", "seconds": WINDOW_S} | ({"pool": pool} if pool else {})
    return {
        "is_configured": rings is not None,
        "is_drawn": finders.find(UPLOT) is not None,
        "socket": f"/ws/telemetry?{urlencode(query)}",
        "by_pool": not pool,
        "charts": [chart.at(total) for chart in (OF_POOL if pool else OF_ALL)],
    }


def cells(actor: Actor) -> dict[str, list[str]] | None:
    """A pool's numbers in the order of the overview's charts, by name; None when nothing is known."""
    rings: Rings | None = known() if actor.may(Action.READ, TELEMETRY) else None
    if rings is None:
        return None
    pools = columns.present(rings, "")["pools"]
    return {name: [chart.text(values) for chart in OF_ALL] for name, values in pools.items()}
