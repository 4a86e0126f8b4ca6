"""How this processor fares, said once a second to whoever watches. Only one that knows Valkey does this.

A summary is the difference of two looks at numbers that are kept anyway. What was counted since a
configuration or a policy came into force is counted from the summary before it was first seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from dataplane import valkey
from dataplane.clock import SYSTEM_CLOCK, Clock
from dataplane.extproc.transport_metrics import TransportMetrics
from dataplane.telemetry.summary import (
    MAX_NAME,
    MAX_POLICIES,
    PROCESSORS,
    PolicyCounts,
    ProcessorSummary,
    quantile,
)
from ipp.metrics import PROCESSING_BOUNDS, IppMetrics
from ipp.policies import PolicyHolder
from ipp.verdict_log import VerdictLog

if TYPE_CHECKING:
    from dataplane.telemetry.publisher import Publisher

LEAST_INTERVAL_S: Final = 1e-3
MOST_INTERVAL_S: Final = 3600.0


class _Totals(NamedTuple):
    """Since the process began."""

    requests: int
    errors: int
    refused: int
    blocked: int
    blocked_by: Mapping[str, int]
    latencies: list[int]


class _InForce(NamedTuple):
    """A policy's revision, and the totals before it was in force."""

    revision: int
    order: int
    requests: int
    errors: int
    blocked: int


class Summariser:
    """Makes a summary of what happened since the last one."""

    def __init__(
        self,
        worker: str,
        processor: str,
        metrics: IppMetrics,
        policies: PolicyHolder,
        verdicts: VerdictLog,
        transport: TransportMetrics,
        revision: Callable[[], str],
        is_ready: Callable[[], bool],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._worker = worker[:MAX_NAME]
        self._processor = processor[:MAX_NAME]
        self._metrics = metrics
        self._policies = policies
        self._verdicts = verdicts
        self._transport = transport
        self._revision = revision
        self._is_ready = is_ready
        self._clock = clock
        self._before = self._look()
        self._at = clock()
        self._running = revision()
        self._base = self._before
        """Totals when the running configuration was first seen."""
        self._seen: Mapping[str, int] | None = None
        self._in_force: dict[str, _InForce] = {}
        self._order = 0

    def __call__(self) -> ProcessorSummary:
        """The time since the last call."""
        now, at, revision = self._look(), self._clock(), self._revision()
        before, interval = self._before, at - self._at
        if revision != self._running:
            self._running, self._base = revision, before
        self._follow(before, now)
        self._before, self._at = now, at
        base = self._base
        latencies = [a - b for a, b in zip(now.latencies, before.latencies, strict=True)]
        transport, policies = self._transport, self._policies
        return ProcessorSummary(
            worker=self._worker,
            processor=self._processor,
            at=time.time(),
            interval_s=min(max(interval, LEAST_INTERVAL_S), MOST_INTERVAL_S),
            version=self._metrics.version[:MAX_NAME],
            ready=self._is_ready(),
            requests=now.requests - before.requests,
            errors=now.errors - before.errors,
            refused=now.refused - before.refused,
            blocked=now.blocked - before.blocked,
            inflight=max(0, transport.streams_opened - transport.streams_closed),
            latency_p50=quantile(PROCESSING_BOUNDS, latencies, 0.5),
            latency_p95=quantile(PROCESSING_BOUNDS, latencies, 0.95),
            loop_lag=max(transport.lag_max_s, transport.lag_previous_max_s),
            revision=revision[:MAX_NAME],
            revision_requests=now.requests - base.requests,
            revision_errors=now.errors - base.errors,
            revision_blocked=now.blocked - base.blocked,
            policies_version=policies.revision[:MAX_NAME],
            policies_total=len(self._in_force),
            policies=self._counts(now),
        )

    def _look(self) -> _Totals:
        metrics, verdicts = self._metrics, self._verdicts
        return _Totals(
            requests=int(metrics.success.value) + metrics.refused,
            errors=metrics.failed,
            refused=metrics.refused,
            blocked=verdicts.blocked,
            blocked_by=dict(verdicts.blocked_by),
            latencies=list(metrics.processing.counts),
        )

    def _follow(self, before: _Totals, now: _Totals) -> None:
        """Note which revisions of policies are in force, and since when."""
        revisions = self._policies.revisions
        if revisions is self._seen:
            return
        self._seen = revisions
        self._order += 1
        found: dict[str, _InForce] = {}
        for name, number in revisions.items():
            known = self._in_force.get(name)
            if known is None or known.revision != number:
                # Less than before: the policy was gone in between, and its count with it.
                blocked = min(before.blocked_by.get(name, 0), now.blocked_by.get(name, 0))
                known = _InForce(number, self._order, before.requests, before.errors, blocked)
            found[name] = known
        self._in_force = found
        for name in self._verdicts.blocked_by.keys() - revisions.keys():
            del self._verdicts.blocked_by[name]

    def _counts(self, now: _Totals) -> list[PolicyCounts]:
        newest = sorted(self._in_force.items(), key=lambda each: -each[1].order)[:MAX_POLICIES]
        return [
            PolicyCounts(
                name=name[:MAX_NAME],
                revision=each.revision,
                requests=now.requests - each.requests,
                errors=now.errors - each.errors,
                blocked=now.blocked_by.get(name, 0) - each.blocked,
            )
            for name, each in newest
        ]


def publisher(url: str, summarise: Summariser) -> Publisher | None:
    """What publishes this processor's summaries; None when no Valkey is known. ``ConfigError``."""
    if not url:
        return None
    from dataplane.telemetry.publisher import Publisher

    return Publisher(valkey.connect(url, "--valkey-url"), summarise, PROCESSORS)
