"""The last fifteen minutes of every worker, and what they amount to for a pool.

One writer (``controlplane.telemetry.feed``), many readers in other threads; a lock keeps both short. Points
are small; of endpoints only the last word of each worker is kept. Everything has a cap, because whoever can
write to Valkey can make up workers: beyond it the one not heard of for longest makes room.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from dataplane.telemetry.summary import Summary

WINDOW_S: Final = 900
MAX_WORKERS: Final = 500
"""Series that are kept, some 250 bytes a second each."""
STALE_S: Final = 5.0
"""A worker that has said nothing for so long does not count towards its pool's last second."""


class Point(msgspec.Struct, frozen=True, rename="camel"):
    """One second of a worker or of a pool. Durations in seconds; of several workers the largest."""

    at: int
    """Since the epoch."""
    requests_per_s: float
    errors_per_s: float
    inflight: int
    queue: float
    kv_usage: float | None
    """Mean share of KV caches in use."""
    ttft_p50: float | None
    ttft_p95: float | None
    hit_ratio: float | None
    decision_p50: float | None
    decision_p95: float | None
    loop_lag: float
    endpoints_ready: int
    endpoints_total: int
    workers: int = 1


class _Series:
    __slots__ = ("last", "number", "points")

    def __init__(self) -> None:
        self.points: deque[Point] = deque(maxlen=WINDOW_S)
        self.last: Summary | None = None
        self.number = 0


class Rings:
    """Written by one thread, read by any."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._series: dict[tuple[str, str], _Series] = {}
        self._number = 0

    def add(self, summary: Summary) -> None:
        """One more second of a worker; an older one than its last is left out."""
        if abs(summary.at - self._clock()) > WINDOW_S:
            return
        with self._lock:
            key = (summary.pool, summary.worker)
            series = self._series.get(key)
            if series is None:
                if len(self._series) >= MAX_WORKERS:
                    del self._series[min(self._series, key=lambda k: self._series[k].number)]
                series = self._series[key] = _Series()
            if series.last is not None and summary.at <= series.last.at:
                return
            self._number += 1
            series.number = self._number
            series.last = summary
            series.points.append(_point(summary))

    def changed(self, since: int, pool: str = "") -> tuple[int, list[str]]:
        """The number of the last summary, and the pools that have news after the one of number ``since``."""
        with self._lock:
            names = {
                name
                for (name, _), series in self._series.items()
                if series.number > since and pool in ("", name)
            }
            return self._number, sorted(names)

    def pools(self) -> list[str]:
        """Names of pools of which something is known."""
        self._forget()
        return self.changed(0)[1]

    def latest(self, pool: str) -> dict[str, Any] | None:
        """The pool's last second, and each of its workers' with its endpoints; None = nothing is known."""
        now = self._clock()
        with self._lock:
            found = [s.last for (name, _), s in self._series.items() if name == pool and s.last]
        if not found:
            return None
        present = [_point(summary) for summary in found if now - summary.at <= STALE_S]
        return {
            "point": msgspec.to_builtins(merged(int(now), present, same_servers=True)) if present else None,
            "workers": [
                {**msgspec.to_builtins(summary), "stale": now - summary.at > STALE_S}
                for summary in sorted(found, key=lambda summary: summary.worker)
            ],
        }

    def points(self, pool: str, seconds: int = WINDOW_S) -> list[dict[str, Any]]:
        """The pool's last seconds in order of time; one in which nobody said anything is left out."""
        after = self._clock() - seconds
        by_second: dict[int, dict[str, Point]] = {}
        with self._lock:
            for (name, worker), series in self._series.items():
                if name == pool:
                    for point in series.points:
                        if point.at >= after:
                            by_second.setdefault(point.at, {})[worker] = point
        return [
            msgspec.to_builtins(merged(at, by_second[at].values(), same_servers=True))
            for at in sorted(by_second)
        ]

    def copied(self, pool: str = "") -> dict[str, list[list[Point]]]:
        """Every worker's points in order of time, by pool; of one pool when it is named."""
        with self._lock:
            found: dict[str, list[list[Point]]] = {}
            for (name, _), series in self._series.items():
                if pool in ("", name):
                    found.setdefault(name, []).append(list(series.points))
            return found

    def present(self, pool: str = "") -> dict[str, Point]:
        """Every pool's last second, of those whose workers are heard."""
        now = self._clock()
        with self._lock:
            found: dict[str, list[Point]] = {}
            for (name, _), series in self._series.items():
                if pool in ("", name) and series.last is not None and now - series.last.at <= STALE_S:
                    found.setdefault(name, []).append(series.points[-1])
        return {name: merged(int(now), found[name], same_servers=True) for name in sorted(found)}

    def now(self) -> int:
        """The present second."""
        return int(self._clock())

    def _forget(self) -> None:
        """Drop workers of which nothing is left to show."""
        before = self._clock() - WINDOW_S
        with self._lock:
            for key in [k for k, s in self._series.items() if s.last is None or s.last.at < before]:
                del self._series[key]


def _point(summary: Summary) -> Point:
    return Point(
        at=int(summary.at),
        requests_per_s=round(summary.requests / summary.interval_s, 3),
        errors_per_s=round(summary.errors / summary.interval_s, 3),
        inflight=summary.inflight,
        queue=summary.queue,
        kv_usage=summary.kv_usage,
        ttft_p50=summary.ttft_p50,
        ttft_p95=summary.ttft_p95,
        hit_ratio=summary.hit_ratio,
        decision_p50=summary.decision_p50,
        decision_p95=summary.decision_p95,
        loop_lag=summary.loop_lag,
        endpoints_ready=summary.endpoints_ready,
        endpoints_total=summary.endpoints_total,
    )


def merged(at: int, points: Iterable[Point], *, same_servers: bool) -> Point:
    """Of several workers of a pool, or of several pools.

    Rates and requests in flight add up, shares are weighed by requests, the worst time counts. Workers of a
    pool see the same model servers, so queues and endpoints do not add up; pools have servers of their own.
    """
    found = list(points)
    if len(found) == 1:
        return found[0] if found[0].at == at else msgspec.structs.replace(found[0], at=at)

    def values(name: str) -> list[Any]:
        return [value for point in found if (value := getattr(point, name)) is not None]

    def most(name: str) -> Any:
        return max(values(name), default=None)

    def of_servers(name: str) -> Any:
        return most(name) if same_servers else sum(values(name))

    def mean(name: str, weight: str) -> float | None:
        told = [(v, max(getattr(p, weight), 1e-9)) for p in found if (v := getattr(p, name)) is not None]
        return sum(v * w for v, w in told) / sum(w for _, w in told) if told else None

    return Point(
        at=at,
        requests_per_s=round(sum(p.requests_per_s for p in found), 3),
        errors_per_s=round(sum(p.errors_per_s for p in found), 3),
        inflight=sum(p.inflight for p in found),
        queue=of_servers("queue"),
        kv_usage=most("kv_usage") if same_servers else mean("kv_usage", "endpoints_ready"),
        ttft_p50=most("ttft_p50"),
        ttft_p95=most("ttft_p95"),
        hit_ratio=mean("hit_ratio", "requests_per_s"),
        decision_p50=most("decision_p50"),
        decision_p95=most("decision_p95"),
        loop_lag=most("loop_lag"),
        endpoints_ready=of_servers("endpoints_ready"),
        endpoints_total=of_servers("endpoints_total"),
        workers=sum(point.workers for point in found),
    )
