"""Ties ejection and slow start of one pool to its request path, its metrics and its debug page.

One guard lives as long as the picker: a reload gives it another policy and leaves what it knows. The
director asks it at the beginning of a decision and tells it where a request goes and what came back. Owned
by the event loop's thread; nothing here blocks. While no endpoint has failed lately and all are warm, a
request costs it two comparisons.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import Any, Final

from dataplane.clock import Clock
from dataplane.config.resilience import ResilienceSpec
from dataplane.headers import Headers
from dataplane.observability.exposition import MetricSet
from epp.interfaces.endpoint import Endpoint, EndpointTable
from epp.interfaces.scheduling import SchedulingResult
from epp.resilience.ejection import Ejector, State, Trial
from epp.resilience.fallback import runners_up
from epp.resilience.outcomes import is_failure, judge
from epp.resilience.slow_start import SlowStart

log = logging.getLogger(__name__)

PREFIX: Final = "pointsman_epp_"

BY_STATUS: Final = "status"
PASSED_OVER: Final = "passed-over"

Trials = Sequence[tuple[Endpoint, Trial]]


class Guard:
    """Watches over the endpoints of one table. An ``EndpointObserver``."""

    def __init__(
        self,
        table: EndpointTable,
        clock: Clock,
        rng: random.Random,
        metrics: MetricSet,
        policy: ResilienceSpec | None = None,
    ) -> None:
        policy = policy or ResilienceSpec()
        self._table = table
        self._clock = clock
        self._rng = rng
        self.ejector = Ejector(table, policy.ejection, rng)
        self.slow_start = SlowStart(table, policy.slow_start, rng)
        self._failures = metrics.counter(
            PREFIX + "endpoint_failures_total", "Failures that count against endpoints.", ("kind",)
        )
        self._ejections = metrics.counter(
            PREFIX + "ejections_total", "Endpoints left out for failing requests, by reason.", ("reason",)
        )
        self._fallbacks = metrics.counter(
            PREFIX + "fallback_served_total",
            "Requests served by another endpoint than the one chosen.",
            ("place",),
        )
        metrics.computed(
            PREFIX + "ejected_endpoints",
            "Endpoints left out for failing requests, or on probation after that.",
            ("state",),
            self._ejected,
        )
        metrics.computed(
            PREFIX + "warming_endpoints",
            "Endpoints that do not get their full share of the load yet.",
            (),
            self._warming,
        )

    def configure(self, policy: ResilienceSpec) -> None:
        """Go on under another policy."""
        now = self._clock()
        self.ejector.configure(policy.ejection, now)
        self.slow_start.configure(policy.slow_start, now)

    def begin(self) -> None:
        """A decision begins: whose time is over comes back, who is warm is."""
        if self.ejector.records or self._table.warming:
            now = self._clock()
            self.ejector.tick(now)
            self.slow_start.tick(now)

    def sent(self, result: SchedulingResult) -> Trials:
        """A request leaves for its endpoints; those of them that are on trial with it."""
        if not self.ejector.records:
            return ()
        now = self._clock()
        parties = (result.endpoints[0], result.prefill_endpoint)
        return [(e, trial) for e in parties if e is not None and (trial := self.ejector.dispatched(e, now))]

    def answered(
        self, result: SchedulingResult, trials: Trials, status: int, served: str, headers: Headers
    ) -> None:
        """Response headers have come; ``served`` is ``ip:port`` as Envoy says, empty when it does not."""
        as_chosen = not served or served == result.endpoints[0].key
        if as_chosen and not self.ejector.records and not is_failure(status, headers):
            return
        named = result.destinations
        verdict = judge(named, self._table.at(served), status, headers, told=bool(served))
        if not as_chosen:
            self._fallbacks.child("listed" if verdict.last in named else "unlisted").value += 1
        now, on_trial = self._clock(), dict(trials)
        for endpoint in verdict.passed_over:
            self._failed(endpoint, on_trial.pop(endpoint, None), now, PASSED_OVER)
        if verdict.failed is not None:
            # Whose fault a failure of two stages is cannot be seen: both are blamed, and success with other
            # partners clears the one that is innocent.
            for party in dict.fromkeys((verdict.last, result.prefill_endpoint)):
                if party is not None and verdict.failed:
                    self._failed(party, on_trial.pop(party, None), now, BY_STATUS)
                elif party is not None:
                    self._succeeded(party, on_trial.pop(party, None), now)
        self.unanswered(list(on_trial.items()))

    def unanswered(self, trials: Trials) -> None:
        """A request ended without telling how its endpoints do."""
        for endpoint, trial in trials:
            self.ejector.undecided(endpoint, trial)

    def in_service(self, endpoint: Endpoint) -> bool:
        """Whether an endpoint is neither ejected nor on probation."""
        return self.ejector.state_of(endpoint) in (None, State.WATCHED)

    def runners_up(self, result: SchedulingResult, most: int) -> list[Endpoint]:
        """Endpoints to name behind those picked, so that ``most`` are named in all."""
        return runners_up(result, most, self.in_service, self._rng)

    def on_endpoint_added(self, endpoint: Endpoint) -> None:
        """A new endpoint warms up."""
        if self.slow_start.policy.enabled:
            self._table.warm_up(endpoint.slot, self._clock())

    def settle(self) -> None:
        """The endpoints a picker finds when it starts are not new to the world, only to it."""
        self.slow_start.settle()

    def on_endpoint_removed(self, endpoint: Endpoint) -> None:
        """Its past leaves with it."""
        self.ejector.forget(endpoint, self._clock())

    def describe(self, endpoint: Endpoint) -> dict[str, Any]:
        """JSON-able: what is held against an endpoint, and the share it gets for being new."""
        now = self._clock()
        self.ejector.tick(now)
        enabled = self.slow_start.policy.enabled
        share = float(self.slow_start.share(endpoint.slot, now)) if enabled else 1.0
        return {"ejection": self.ejector.describe(endpoint, now), "share": round(share, 3)}

    def _ejected(self) -> list[tuple[tuple[str], int]]:
        """Endpoints by state. Whoever looks sees what is true now, though no request may have come lately."""
        self.begin()
        return [((state.value,), self.ejector.count(state)) for state in (State.EJECTED, State.PROBING)]

    def _warming(self) -> list[tuple[tuple[()], int]]:
        """Endpoints without their full share, likewise."""
        self.begin()
        return [((), self._table.warming)]

    def _failed(self, endpoint: Endpoint, trial: Trial | None, now: float, kind: str) -> None:
        self._failures.child(kind).value += 1
        reason = self.ejector.failed(endpoint, trial, now)
        if reason is not None:
            self._ejections.child(reason.value).value += 1
            record = self.ejector.records[endpoint]
            log.warning(
                "endpoint %s (%s) is left out for %.1f s: %s, %d failures in a row, the last by %s",
                endpoint.spec.id, endpoint.key, record.until - now, reason.value, record.consecutive, kind,
            )  # fmt: skip

    def _succeeded(self, endpoint: Endpoint, trial: Trial | None, now: float) -> None:
        if self.ejector.succeeded(endpoint, trial, now):
            if self.slow_start.policy.enabled:
                self._table.warm_up(endpoint.slot, now)
            log.info("endpoint %s (%s) answers again and is back", endpoint.spec.id, endpoint.key)
