"""The last minutes as charts want them: a value per second and line, for the busiest pools and for all.

A worker's word holds for a few seconds, as in the pool's last second, so that one that speaks a moment late
leaves no dent. A second in which nobody's word holds has no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from controlplane.telemetry.rings import STALE_S, Point, Rings, merged

MAX_POOLS: Final = 8
"""Pools with lines of their own, those with most requests; what is of all pools is of more than these."""
METRICS: Final = {
    "requestsPerS": "requests_per_s",
    "errorsPerS": "errors_per_s",
    "inflight": "inflight",
    "queue": "queue",
    "kvUsage": "kv_usage",
    "ttftP50": "ttft_p50",
    "ttftP95": "ttft_p95",
}
"""Names of lines, and the fields they show."""
DIGITS: Final = 4

Columns = dict[str, list[float | None]]
_GET: Final = [(name, attrgetter(field)) for name, field in METRICS.items()]


def history(rings: Rings, pool: str, seconds: int) -> dict[str, Any]:
    """The last ``seconds`` seconds: ``{at, seconds, total, pools}``, where ``at`` is the first of them.

    ``total`` is of all pools; ``pools`` are the busiest. With a ``pool`` both are of that one.
    """
    first = rings.now() - seconds + 1
    lines = {name: _within(workers, first, seconds) for name, workers in rings.copied(pool).items()}
    total = [_of_all(first + index, lines.values(), index) for index in range(seconds)]
    busiest = sorted(lines, key=lambda name: (-_requests(lines[name]), name))[:MAX_POOLS]
    return {
        "at": first,
        "seconds": seconds,
        "total": _columns(total),
        "pools": {name: _columns(lines[name]) for name in busiest},
    }


def present(rings: Rings, pool: str) -> dict[str, Any]:
    """This second, as ``history`` names things; ``total`` is None when nobody is heard."""
    points = rings.present(pool)
    at = rings.now()
    total = merged(at, points.values(), same_servers=False) if points else None
    return {
        "at": at,
        "total": None if total is None else values(total),
        "pools": {name: values(point) for name, point in points.items()},
    }


def values(point: Point) -> dict[str, float | None]:
    """A point's values by the names of lines."""
    return {name: _rounded(get(point)) for name, get in _GET}


def _within(workers: Sequence[Sequence[Point]], first: int, seconds: int) -> list[Point | None]:
    """A pool's point of each second."""
    spoken: list[list[Point]] = [[] for _ in range(seconds)]
    for points in workers:
        held: Point | None = None
        by_second: Mapping[int, Point] = {point.at: point for point in points}
        for index in range(-int(STALE_S), seconds):
            held = by_second.get(first + index, held)
            if index >= 0 and held is not None and first + index - held.at <= STALE_S:
                spoken[index].append(held)
    return [
        merged(first + index, found, same_servers=True) if found else None
        for index, found in enumerate(spoken)
    ]


def _of_all(at: int, lines: Iterable[Sequence[Point | None]], index: int) -> Point | None:
    found = [point for line in lines if (point := line[index]) is not None]
    return merged(at, found, same_servers=False) if found else None


def _requests(line: Sequence[Point | None]) -> float:
    return sum(point.requests_per_s for point in line if point is not None)


def _columns(line: Sequence[Point | None]) -> Columns:
    return {name: [None if p is None else _rounded(get(p)) for p in line] for name, get in _GET}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
