"""Circuit breaking per endpoint: who fails requests is left out for a while, and comes back by a probe.

Sans-I/O and owned by the event loop's thread: it is told of outcomes with the time of each, and sets one
column of the endpoint table. An endpoint has a record from its first failure on; with no failures anywhere
there are no records, and nothing here costs a request anything.

    watched --failures in a row, or a share of them in a window--> ejected
    ejected --its time is over--> probing: a candidate, but for one request at a time
    probing --the request fails--> ejected, for longer
    probing --it succeeds--> watched

Each ejection lasts ``factor`` times as long as the one before, up to ``maxTime``; a step is taken back for
every window without one. Of the pool a configured share may be away at once, and never everybody; those at
which nobody listens are not counted.

A record belongs to one ``Endpoint`` object. Discovery makes a new object when an endpoint returns, so what
its predecessor did, or is still to be heard of, does not touch it.
"""

from __future__ import annotations

import math
import random
from enum import StrEnum
from typing import Any, Final, NamedTuple

from dataplane.config.resilience import EjectionSpec
from epp.interfaces.endpoint import Endpoint, EndpointTable

PROBE_LEASE_S: Final = 30.0
"""A probe of which nothing is heard for so long no longer keeps others from being tried."""

MAX_LEVEL: Final = 64
"""Steps of the back-off that are counted; more would only overflow."""


class State(StrEnum):
    """Where a record stands."""

    WATCHED = "watched"
    EJECTED = "ejected"
    PROBING = "probing"


class Reason(StrEnum):
    """Why an endpoint is ejected."""

    CONSECUTIVE = "consecutive-failures"
    SHARE = "failure-share"
    PROBE = "probe-failed"


class Record:
    """What is remembered of one endpoint that has failed."""

    __slots__ = (
        "consecutive",
        "level",
        "number",
        "probe_until",
        "since",
        "state",
        "steady_since",
        "until",
        "window_failures",
        "window_requests",
        "window_start",
    )

    def __init__(self, now: float) -> None:
        self.state = State.WATCHED
        self.consecutive = 0
        self.window_start = now
        self.window_requests = 0
        self.window_failures = 0
        self.level = 0
        """Steps of the back-off."""
        self.number = 0
        """Ejections so far."""
        self.since = now
        """When the state was entered."""
        self.steady_since = now
        """From when on windows without an ejection are counted."""
        self.until = 0.0
        """End of the ejection."""
        self.probe_until: float | None = None
        """End of the lease of the probe under way."""

    def open_window(self, now: float) -> None:
        """Count from here on."""
        self.window_start = now
        self.window_requests = self.window_failures = 0


class Trial(NamedTuple):
    """A request sent to an endpoint that is not in full service; its outcome decides."""

    record: Record
    number: int
    """The record's ``number`` at that time."""


class Ejector:
    """Ejects and readmits endpoints of one table."""

    def __init__(self, table: EndpointTable, policy: EjectionSpec, rng: random.Random) -> None:
        self._table = table
        self._rng = rng
        self._due = math.inf
        self.policy = policy
        self.records: dict[Endpoint, Record] = {}
        """Endpoints with a past; empty while all is well."""

    def configure(self, policy: EjectionSpec, now: float) -> None:
        """Judge by another policy from now on; who is ejected stays so, unless nobody is to be any more."""
        self.policy = policy
        if not policy.enabled:
            for endpoint in list(self.records):
                self._table.readmit(endpoint.slot)
            self.records.clear()
            self._due = math.inf
        self._keep_within_share(now)

    def tick(self, now: float) -> None:
        """Let those whose time is over be probed."""
        if now < self._due:
            return
        for endpoint, record in self.records.items():
            if record.state is State.EJECTED and record.until <= now:
                record.state, record.since, record.probe_until = State.PROBING, now, None
                self._table.readmit(endpoint.slot)
            elif record.probe_until is not None and record.probe_until <= now:
                record.probe_until = None
                self._table.readmit(endpoint.slot)
        self._next_due()

    def dispatched(self, endpoint: Endpoint, now: float) -> Trial | None:
        """A request goes to ``endpoint``; None when that is in full service."""
        record = self.records.get(endpoint)
        if record is None or record.state is State.WATCHED:
            return None
        if record.state is State.PROBING and record.probe_until is None:
            record.probe_until = now + PROBE_LEASE_S
            self._due = min(self._due, record.probe_until)
            self._bar(endpoint)
        return Trial(record, record.number)

    def undecided(self, endpoint: Endpoint, trial: Trial) -> None:
        """A request that was a trial ended without an outcome: the client left, for example."""
        record = self._tried(endpoint, trial)
        if record is not None and record.state is State.PROBING:
            record.probe_until = None
            self._table.readmit(endpoint.slot)

    def succeeded(self, endpoint: Endpoint, trial: Trial | None, now: float) -> bool:
        """``endpoint`` answered; whether that ends its ejection."""
        if trial is not None:
            record = self._tried(endpoint, trial)
            if record is None or record.state is State.WATCHED:
                return False
            self._close(endpoint, record, now)
            return True
        record = self.records.get(endpoint)
        if record is None or record.state is not State.WATCHED:
            return False
        if now - record.window_start > self.policy.window:
            record.open_window(now)
        record.consecutive = 0
        record.window_requests += 1
        self._shrink(record, now)
        if not record.window_failures and not record.level:
            del self.records[endpoint]
        return False

    def failed(self, endpoint: Endpoint, trial: Trial | None, now: float) -> Reason | None:
        """``endpoint`` failed a request; why it is ejected for that, None when it is not.

        What is heard of an endpoint that has left, or in a state in which it was not sent, counts nothing.
        """
        if not self.policy.enabled or self._table.endpoints[endpoint.slot] is not endpoint:
            return None
        record = self.records.get(endpoint)
        if trial is not None:
            if record is None or self._tried(endpoint, trial) is None or record.state is not State.PROBING:
                return None
            return self._eject(endpoint, record, Reason.PROBE, now)
        if record is None:
            record = self.records[endpoint] = Record(now)
        elif record.state is not State.WATCHED:
            return None
        elif now - record.window_start > self.policy.window:
            record.open_window(now)
        record.consecutive += 1
        record.window_requests += 1
        record.window_failures += 1
        reason = self._judge(record)
        if reason is None or len(self._away()) >= self._allowed() or not self._others_listen(endpoint):
            return None
        self._shrink(record, now)
        return self._eject(endpoint, record, reason, now)

    def forget(self, endpoint: Endpoint, now: float) -> None:
        """``endpoint`` has left the table."""
        if self.records.pop(endpoint, None) is not None:
            self._next_due()
        self._keep_within_share(now)

    def state_of(self, endpoint: Endpoint) -> State | None:
        """Its state; None when nothing is held against it."""
        record = self.records.get(endpoint)
        return None if record is None else record.state

    def count(self, state: State) -> int:
        """Records in a state."""
        return sum(record.state is state for record in self.records.values())

    def describe(self, endpoint: Endpoint, now: float) -> dict[str, Any] | None:
        """JSON-able; None when nothing is held against the endpoint."""
        record = self.records.get(endpoint)
        if record is None:
            return None
        ejected = record.state is State.EJECTED
        return {
            "state": record.state.value,
            "secondsInState": round(now - record.since, 1),
            "secondsLeft": round(max(0.0, record.until - now), 1) if ejected else None,
            "consecutiveFailures": record.consecutive,
            "windowFailures": record.window_failures,
            "windowRequests": record.window_requests,
            "ejections": record.number,
            "backOffSteps": record.level,
        }

    def _judge(self, record: Record) -> Reason | None:
        policy = self.policy
        if policy.consecutive_failures and record.consecutive >= policy.consecutive_failures:
            return Reason.CONSECUTIVE
        enough = policy.min_requests and record.window_requests >= policy.min_requests
        if enough and record.window_failures >= policy.failure_share * record.window_requests:
            return Reason.SHARE
        return None

    def _eject(self, endpoint: Endpoint, record: Record, reason: Reason, now: float) -> Reason:
        policy = self.policy
        lasts = min(policy.max_time, policy.base_time * policy.factor**record.level)
        lasts *= self._rng.uniform(1 - policy.jitter, 1 + policy.jitter)
        record.state, record.since, record.until = State.EJECTED, now, now + lasts
        record.probe_until = None
        record.level = min(record.level + 1, MAX_LEVEL)
        record.number += 1
        self._due = min(self._due, record.until)
        self._table.eject(endpoint.slot)
        return reason

    def _close(self, endpoint: Endpoint, record: Record, now: float) -> None:
        record.state, record.since, record.probe_until = State.WATCHED, now, None
        record.steady_since, record.consecutive = now, 0
        record.open_window(now)
        self._table.readmit(endpoint.slot)

    def _bar(self, endpoint: Endpoint) -> None:
        """Leave a probed endpoint out, unless it is the last one."""
        if self._others_listen(endpoint):
            self._table.eject(endpoint.slot)

    def _shrink(self, record: Record, now: float) -> None:
        """Take back a step of the back-off for each window without an ejection."""
        if record.level:
            steps = int((now - record.steady_since) / self.policy.window)
            record.level = max(0, record.level - steps)
            record.steady_since += steps * self.policy.window

    def _tried(self, endpoint: Endpoint, trial: Trial) -> Record | None:
        """The record of a trial, if that is still the endpoint's and no other ejection has come between."""
        record = self.records.get(endpoint)
        return record if record is trial.record and record.number == trial.number else None

    def _away(self) -> list[tuple[Endpoint, Record]]:
        """Endpoints that listen and are not in full service.

        One at which nobody listens is out for that, whatever its record: it must not keep one that answers
        errors, and so draws the requests of all, in service.
        """
        gone = self._table.gone
        return [(e, r) for e, r in self.records.items() if r.state is not State.WATCHED and not gone[e.slot]]

    def _allowed(self) -> int:
        """How many may be away."""
        size = len(self._table)
        return min(size - 1, max(1, math.floor(self.policy.max_ejected_share * size)))

    def _others_listen(self, endpoint: Endpoint) -> bool:
        """Whether another endpoint is left to take the requests."""
        table = self._table
        slots = table.all().slots
        left = ~(table.gone[slots] | table.ejected[slots]) & (slots != endpoint.slot)
        return bool(left.any())

    def _keep_within_share(self, now: float) -> None:
        """Readmit those that are due first while too many are away for what is left of the pool."""
        away = self._away() if self.records else []
        excess = len(away) - max(0, self._allowed())
        if excess > 0:
            for endpoint, record in sorted(away, key=lambda each: (each[1].until, each[0].slot))[:excess]:
                self._close(endpoint, record, now)
            self._next_due()

    def _next_due(self) -> None:
        times = [r.until for r in self.records.values() if r.state is State.EJECTED]
        times += [r.probe_until for r in self.records.values() if r.probe_until is not None]
        self._due = min(times, default=math.inf)
