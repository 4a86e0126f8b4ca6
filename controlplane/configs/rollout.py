"""How a revision spreads: a state machine without input and output, and who should run what.

    pending ──publish──> canary ──promote──> rolling ──all have applied──> complete
                 └────────────────────────────^
    canary, rolling ── a worker refuses, the guard trips, halt ──> halted
    pending, canary, rolling, halted, complete ── roll back ──> rolled_back

``step`` takes a state and an event and returns the next state. What workers report never raises: a late or
doubled report changes nothing that matters. What operators ask for and cannot be raises ``RefusedError``.
Applied revisions only grow: a halted rollout takes nothing back from workers that run the revision; going
back is a new revision with the older content.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class Stage(StrEnum):
    """How far a rollout is."""

    PENDING = "pending"
    CANARY = "canary"
    ROLLING = "rolling"
    COMPLETE = "complete"
    HALTED = "halted"
    ROLLED_BACK = "rolled_back"


class Outcome(StrEnum):
    """What became of a revision at a worker."""

    SENT = "sent"
    APPLIED = "applied"
    REJECTED = "rejected"


SPREADING = frozenset({Stage.CANARY, Stage.ROLLING})
"""Stages in which workers get the revision and are waited for."""


class RefusedError(Exception):
    """The stage does not allow what an operator asks for; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Canary:
    """Who gets a revision first: a share of the workers above 0 and below 1, or a number of them."""

    share: float | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A rollout. Workers are told apart by their ids."""

    stage: Stage = Stage.PENDING
    canary: Canary | None = None
    salt: str = ""
    """Part of what is hashed with a worker's id, so that not every document tries the same workers first."""
    workers: frozenset[str] = frozenset()
    """Who is there."""
    sent: frozenset[str] = frozenset()
    """Who has been given the revision; those of ``applied`` and ``rejected`` are among them."""
    applied: frozenset[str] = frozenset()
    rejected: frozenset[str] = frozenset()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Publish:
    """Begin: with the canary if there is one, else with everybody."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A worker is given the revision."""

    worker: str


@dataclass(frozen=True, slots=True)
class Ack:
    """A worker runs the revision."""

    worker: str


@dataclass(frozen=True, slots=True)
class Nack:
    """A worker refuses the revision and goes on with what it ran."""

    worker: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GuardTripped:
    """Workers that run the revision see too many errors."""

    reason: str


@dataclass(frozen=True, slots=True)
class Promote:
    """The canary is good: on to everybody."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Nobody else gets the revision."""

    reason: str


@dataclass(frozen=True, slots=True)
class RollBack:
    """A newer revision takes the place of this one."""

    reason: str


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A worker is there."""

    worker: str


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker is not there any more; nobody waits for it."""

    worker: str


Report = Sent | Ack | Nack | GuardTripped | WorkerJoined | WorkerLeft
Order = Publish | Promote | Halt | RollBack
Event = Report | Order


def step(state: State, event: Event) -> State:
    """The state after an event. ``RefusedError`` for an order that the stage does not allow."""
    if isinstance(event, Publish | Promote | Halt | RollBack):
        return _settled(_ordered(state, event))
    return _settled(_reported(state, event))


def _ordered(state: State, event: Order) -> State:
    stage = state.stage
    if isinstance(event, RollBack):
        if stage is Stage.ROLLED_BACK:
            raise RefusedError("the rollout is rolled back already")
        return replace(state, stage=Stage.ROLLED_BACK, reason=event.reason)
    if isinstance(event, Publish):
        if stage is not Stage.PENDING:
            raise RefusedError(f"the rollout is {stage} already")
        return replace(state, stage=Stage.ROLLING if state.canary is None else Stage.CANARY)
    if isinstance(event, Halt):
        if stage not in SPREADING:
            raise RefusedError(f"the rollout is {stage}; only one under way can be halted")
        return replace(state, stage=Stage.HALTED, reason=event.reason)
    if stage is not Stage.CANARY:
        raise RefusedError(f"the rollout is {stage}; only a canary can be promoted")
    if state.workers and not state.applied:
        raise RefusedError("no worker of the canary runs the revision yet; wait for one, or halt")
    return replace(state, stage=Stage.ROLLING)


def _reported(state: State, event: Report) -> State:
    if isinstance(event, WorkerJoined):
        return replace(state, workers=state.workers | {event.worker})
    if isinstance(event, WorkerLeft):
        return replace(state, workers=state.workers - {event.worker})
    if isinstance(event, GuardTripped):
        return _halted(state, event.reason)
    sent = state.sent | {event.worker}
    if isinstance(event, Sent):
        return replace(state, sent=sent)
    if isinstance(event, Ack):
        applied, rejected = state.applied | {event.worker}, state.rejected - {event.worker}
        return replace(state, sent=sent, applied=applied, rejected=rejected)
    # Whoever runs the revision keeps running it whatever it says later, for example about a damaged copy.
    rejected = state.rejected if event.worker in state.applied else state.rejected | {event.worker}
    reason = f"{event.worker} refuses it" + (f": {event.reason}" if event.reason else "")
    return _halted(replace(state, sent=sent, rejected=rejected), reason)


def _halted(state: State, reason: str) -> State:
    if state.stage not in SPREADING:
        return state
    return replace(state, stage=Stage.HALTED, reason=reason)


def _settled(state: State) -> State:
    """Complete once everybody who is there runs the revision."""
    if state.stage is Stage.ROLLING and state.workers <= state.applied:
        return replace(state, stage=Stage.COMPLETE)
    return state


def is_reached(state: State, worker: str) -> bool:
    """Whether the rollout gives its revision to a worker that is there."""
    if state.stage in {Stage.ROLLING, Stage.COMPLETE}:
        return True
    return state.stage is Stage.CANARY and worker in canary_of(state)


def canary_of(state: State) -> frozenset[str]:
    """Workers of the canary: those who have been given the revision, and by hash as many as are missing.

    By share a worker's place depends on its id alone; when it is nobody's, the first worker is the canary, so
    that a canary of a small pool is not empty.
    """
    if state.canary is None:
        return frozenset()
    present = state.workers & state.sent
    order = sorted(state.workers - state.sent, key=lambda worker: (place(state.salt, worker), worker))
    if state.canary.share is not None:
        share = state.canary.share
        chosen = {worker for worker in order if place(state.salt, worker) < share}
        chosen |= present
        return frozenset(chosen or order[:1])
    missing = max(0, (state.canary.count or 1) - len(present))
    return frozenset(present | set(order[:missing]))


def place(salt: str, worker: str) -> float:
    """A worker's place from 0 to below 1, always the same."""
    digest = hashlib.sha256(f"{salt}\x00{worker}".encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:6]) / (1 << 48)


def desired_number(
    state: State | None, revision: int, worker: str, *, active: int | None, applied: int | None
) -> int | None:
    """The revision a worker should run; None when there is none yet.

    ``state`` is the newest rollout, of ``revision``. A worker that the rollout does not reach runs the active
    revision, or what it has applied already if that is newer.
    """
    held = max((number for number in (active, applied) if number is not None), default=None)
    if state is not None and is_reached(state, worker):
        return revision if held is None else max(held, revision)
    return held


@dataclass(frozen=True, slots=True)
class Guard:
    """Stops a rollout when workers that run the revision see too many errors."""

    max_error_share: float | None
    """0 to 1; None = however many."""
    min_requests: int
    """Below so many requests of all these workers together nothing is judged."""
    max_blocked_share: float | None = None
    """Of requests that guardrails have ended; None = however many, for that is what they are there for."""


class Counts(NamedTuple):
    """What a worker has counted since it runs a revision."""

    requests: int = 0
    errors: int = 0
    blocked: int = 0
    """Ended by a guardrail, which is no error."""


def judge(guard: Guard, observed: Iterable[Counts]) -> GuardTripped | None:
    """Whether what workers have counted is too bad."""
    counts = list(observed)
    requests = sum(each.requests for each in counts)
    if requests < max(1, guard.min_requests):
        return None
    errors, blocked = sum(each.errors for each in counts), sum(each.blocked for each in counts)
    judged = (
        (errors, guard.max_error_share, "failed"),
        (blocked, guard.max_blocked_share, "were blocked"),
    )
    for count, most, what in judged:
        share = count / requests
        if most is not None and share > most and not math.isclose(share, most):
            return GuardTripped(
                f"{count} of {requests} requests {what} ({share:.1%}) at workers that run it; "
                f"{most:.1%} is allowed"
            )
    return None
