"""The last fifteen minutes of payload processors, and what their replicas amount to together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from controlplane.telemetry.recent import WINDOW_S, Recent
from dataplane.telemetry.summary import ProcessorSummary


class ProcessorPoint(msgspec.Struct, frozen=True, rename="camel"):
    """One second of a replica or of all. Durations in seconds; of several replicas the largest."""

    at: int
    """Since the epoch."""
    requests_per_s: float
    errors_per_s: float
    refused_per_s: float
    blocked_per_s: float
    inflight: int
    latency_p50: float | None
    latency_p95: float | None
    loop_lag: float
    ready: int = 1
    """How many are ready."""
    workers: int = 1


class Health(msgspec.Struct, frozen=True, rename="camel"):
    """How a replica fares this second, as lists of workers show it."""

    ready: bool
    requests_per_s: float
    errors_per_s: float
    blocked_per_s: float
    latency_p95: float | None
    loop_lag: float
    revision: str
    """Of the configuration it says it runs; files have one, too."""
    policies_version: str
    """Of the set of policies it says is in force; empty = they come from files."""


class Processors(Recent[ProcessorSummary, ProcessorPoint]):
    """By the name that replicas share."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock, lambda summary: summary.processor, _point)

    def latest(self, name: str) -> dict[str, Any] | None:
        """The last second of all replicas, and each one's; None = nothing is known."""
        found = self.last(name)
        if not found:
            return None
        present = [_point(summary) for summary in found if not self.is_stale(summary)]
        return {
            "point": msgspec.to_builtins(merged(self.now(), present)) if present else None,
            "workers": [
                {**msgspec.to_builtins(summary), "stale": self.is_stale(summary)}
                for summary in sorted(found, key=lambda summary: summary.worker)
            ],
        }

    def points(self, name: str, seconds: int = WINDOW_S) -> list[dict[str, Any]]:
        """The last seconds in order of time; one in which nobody said anything is left out."""
        return [msgspec.to_builtins(merged(at, found)) for at, found in self.by_second(name, seconds).items()]

    def health(self) -> dict[tuple[str, str], Health]:
        """Of every replica that is heard, by the processor's name and the node id."""
        return {
            (summary.processor, summary.worker): _health(summary)
            for summary in self.last()
            if not self.is_stale(summary)
        }


def _health(summary: ProcessorSummary) -> Health:
    point = _point(summary)
    return Health(
        ready=summary.ready,
        requests_per_s=point.requests_per_s,
        errors_per_s=point.errors_per_s,
        blocked_per_s=point.blocked_per_s,
        latency_p95=summary.latency_p95,
        loop_lag=summary.loop_lag,
        revision=summary.revision,
        policies_version=summary.policies_version,
    )


def _point(summary: ProcessorSummary) -> ProcessorPoint:
    def rate(count: int) -> float:
        return round(count / summary.interval_s, 3)

    return ProcessorPoint(
        at=int(summary.at),
        requests_per_s=rate(summary.requests),
        errors_per_s=rate(summary.errors),
        refused_per_s=rate(summary.refused),
        blocked_per_s=rate(summary.blocked),
        inflight=summary.inflight,
        latency_p50=summary.latency_p50,
        latency_p95=summary.latency_p95,
        loop_lag=summary.loop_lag,
        ready=int(summary.ready),
    )


def merged(at: int, points: Iterable[ProcessorPoint]) -> ProcessorPoint:
    """Of several replicas: rates and requests in flight add up, the worst time counts."""
    found = list(points)

    def total(name: str) -> float:
        values: list[float] = [getattr(point, name) for point in found]
        return round(sum(values), 3)

    def most(name: str) -> Any:
        return max((value for point in found if (value := getattr(point, name)) is not None), default=None)

    return ProcessorPoint(
        at=at,
        requests_per_s=total("requests_per_s"),
        errors_per_s=total("errors_per_s"),
        refused_per_s=total("refused_per_s"),
        blocked_per_s=total("blocked_per_s"),
        inflight=sum(point.inflight for point in found),
        latency_p50=most("latency_p50"),
        latency_p95=most("latency_p95"),
        loop_lag=most("loop_lag"),
        ready=sum(point.ready for point in found),
        workers=sum(point.workers for point in found),
    )
