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
            "point": msgspec.to_builtins(_merged(int(now), present)) if present else None,
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
        return [msgspec.to_builtins(_merged(at, by_second[at].values())) for at in sorted(by_second)]

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
        ttft_p50=summary.ttft_p50,
        ttft_p95=summary.ttft_p95,
        hit_ratio=summary.hit_ratio,
        decision_p50=summary.decision_p50,
        decision_p95=summary.decision_p95,
        loop_lag=summary.loop_lag,
        endpoints_ready=summary.endpoints_ready,
        endpoints_total=summary.endpoints_total,
    )


def _merged(at: int, points: Iterable[Point]) -> Point:
    """Of several workers of a pool: rates add up, shares are weighed by requests, the worst time counts.

    Queues and endpoints are the same model servers seen by each worker, so they do not add up.
    """
    found = list(points)
    if len(found) == 1 and found[0].at == at:
        return found[0]

    def most(name: str) -> Any:
        return max((v for p in found if (v := getattr(p, name)) is not None), default=None)

    shares = [(p.hit_ratio, max(p.requests_per_s, 1e-9)) for p in found if p.hit_ratio is not None]
    weight = sum(share[1] for share in shares)
    return Point(
        at=at,
        requests_per_s=round(sum(p.requests_per_s for p in found), 3),
        errors_per_s=round(sum(p.errors_per_s for p in found), 3),
        inflight=sum(p.inflight for p in found),
        queue=most("queue"),
        ttft_p50=most("ttft_p50"),
        ttft_p95=most("ttft_p95"),
        hit_ratio=sum(ratio * each for ratio, each in shares) / weight if shares else None,
        decision_p50=most("decision_p50"),
        decision_p95=most("decision_p95"),
        loop_lag=most("loop_lag"),
        endpoints_ready=most("endpoints_ready"),
        endpoints_total=most("endpoints_total"),
        workers=len(found),
    )
