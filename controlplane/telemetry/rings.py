"""The last fifteen minutes of pickers, and what they amount to for a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from controlplane.telemetry.recent import MAX_WORKERS, STALE_S, WINDOW_S, Recent
from dataplane.telemetry.summary import Summary

__all__ = ["MAX_WORKERS", "STALE_S", "WINDOW_S", "Point", "Rings", "merged"]


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


class Rings(Recent[Summary, Point]):
    """Pickers', by pool."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock, lambda summary: summary.pool, _point)

    def pools(self) -> list[str]:
        """Names of pools of which something is known."""
        return self.groups()

    def latest(self, pool: str) -> dict[str, Any] | None:
        """The pool's last second, and each of its workers' with its endpoints; None = nothing is known."""
        found = self.last(pool)
        if not found:
            return None
        present = [_point(summary) for summary in found if not self.is_stale(summary)]
        point = merged(self.now(), present, same_servers=True) if present else None
        return {
            "point": None if point is None else msgspec.to_builtins(point),
            "workers": [
                {**msgspec.to_builtins(summary), "stale": self.is_stale(summary)}
                for summary in sorted(found, key=lambda summary: summary.worker)
            ],
        }

    def points(self, pool: str, seconds: int = WINDOW_S) -> list[dict[str, Any]]:
        """The pool's last seconds in order of time; one in which nobody said anything is left out."""
        return [
            msgspec.to_builtins(merged(at, found, same_servers=True))
            for at, found in self.by_second(pool, seconds).items()
        ]

    def present(self, pool: str = "") -> dict[str, Point]:
        """Every pool's last second, of those whose workers are heard."""
        found = self.heard(pool)
        return {name: merged(self.now(), found[name], same_servers=True) for name in sorted(found)}


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
