"""Rollouts in the database: what operators order and workers report goes through ``rollout.step``.

Documents are told by name and kind; where no kind is said, it is that of pickers. The newest rollout of a
document counts. It is read, stepped and written in one transaction that locks the document's row, so that two
reports never overwrite one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from controlplane.configs.canary import canary_text
from controlplane.configs.models import (
    MAX_REASON,
    ConfigDocument,
    ConfigRevision,
    RevisionAck,
    Rollout,
)
from controlplane.configs.revisions import add_revision, revision_of, run_by
from controlplane.configs.rollout import (
    SPREADING,
    Canary,
    Event,
    Guard,
    Halt,
    Outcome,
    Promote,
    Publish,
    RefusedError,
    RollBack,
    Stage,
    State,
    step,
)
from controlplane.configs.subjects import SUBJECTS, subject_of
from controlplane.core import audit
from controlplane.core.errors import ConflictError, InvalidError, MissingError
from controlplane.core.kinds import KINDS
from controlplane.core.resources import is_storable
from controlplane.core.roles import Action, Actor, require
from controlplane.xds.models import Worker
from dataplane.config.epp_checks import KIND
from dataplane.errors import ConfigError

GOING_BACK: Final = "rolling back makes a new revision with an older content"


@dataclass(frozen=True, slots=True)
class Wish:
    """How to publish."""

    revision: int | None = None
    """None = the newest."""
    canary: Canary | None = None
    """None = all workers at once."""
    guard: Guard | None = None
    comment: str = ""
    """Why, for whoever reads the audit log."""


def locked(name: str, kind: str = KIND) -> ConfigDocument:
    """The document of a name, nobody else's until the transaction ends. ``MissingError`` if there is none."""
    return _one(ConfigDocument.objects.select_for_update(), name, kind)


def found(name: str, kind: str = KIND) -> ConfigDocument:
    """The document of a name, for reading. ``MissingError`` if there is none."""
    return _one(ConfigDocument.objects.select_related("active"), name, kind)


def _one(rows: QuerySet[ConfigDocument], name: str, kind: str) -> ConfigDocument:
    row = rows.filter(kind=kind, name=name).first() if is_storable(name) else None
    if row is None:
        raise MissingError(f"there is no {kind} {name}")
    return row


def newest_of(row: ConfigDocument) -> Rollout | None:
    """The rollout that counts."""
    return row.rollouts.select_related("revision").first()


def load(row: ConfigDocument, rollout: Rollout) -> State:
    """A rollout as the state machine sees it."""
    by_outcome: dict[str, set[str]] = {outcome: set() for outcome in Outcome}
    for worker, outcome in rollout.acks.values_list("worker", "outcome"):
        by_outcome[outcome].add(worker)
    present = awaited(row).values_list("node_id", flat=True)
    return State(
        stage=Stage(rollout.stage),
        canary=canary_of(rollout),
        salt=row.name,
        workers=frozenset(present),
        sent=frozenset().union(*by_outcome.values()),
        applied=frozenset(by_outcome[Outcome.APPLIED]),
        rejected=frozenset(by_outcome[Outcome.REJECTED]),
        reason=rollout.reason,
    )


def awaited(row: ConfigDocument) -> QuerySet[Worker]:
    """Workers of the document that are there."""
    return workers_of(row).filter(is_awaited=True)


def workers_of(row: ConfigDocument) -> QuerySet[Worker]:
    """All workers for which the document is, those that are gone as well."""
    subject = subject_of(row)
    found, clusters = Worker.objects.filter(kind=subject.node), subject.clusters(row)
    return found if clusters is None else found.filter(pool__in=clusters)


def canary_of(rollout: Rollout) -> Canary | None:
    """Its canary, None when it went to everybody at once."""
    if rollout.canary_share is None and rollout.canary_count is None:
        return None
    return Canary(rollout.canary_share, rollout.canary_count)


def guard_of(rollout: Rollout) -> Guard | None:
    """Its guard, if it has one."""
    if rollout.max_error_share is None and rollout.max_blocked_share is None:
        return None
    return Guard(rollout.max_error_share, rollout.min_requests, rollout.max_blocked_share)


def advance(row: ConfigDocument, rollout: Rollout, event: Event) -> State:
    """One step, written down. A complete rollout makes its revision the active one."""
    state = step(load(row, rollout), event)
    save(row, rollout, state)
    return state


def save(row: ConfigDocument, rollout: Rollout, state: State) -> None:
    """Write down stage and reason, and what follows from them."""
    if (state.stage, state.reason) == (rollout.stage, rollout.reason):
        return
    rollout.stage, rollout.reason = state.stage, state.reason[:MAX_REASON]
    rollout.ended_at = None if state.stage in SPREADING else timezone.now()
    rollout.save(update_fields=["stage", "reason", "ended_at"])
    if state.stage is Stage.COMPLETE:
        row.active = rollout.revision
        row.save(update_fields=["active"])


def publish(actor: Actor, name: str, wish: Wish, kind: str = KIND) -> Rollout:
    """Begin to bring a revision to workers.

    ``ConflictError`` while another rollout is under way that it cannot overtake, and for a revision older
    than one that was rolled out: going back is ``roll_back``, which makes a new revision.
    ``InvalidError`` for a guard of what workers do not count.
    """
    require(actor, Action.WRITE, kind)
    if wish.guard is not None and wish.guard.max_blocked_share is not None and not SUBJECTS[kind].is_blocking:
        message = f"would never act: workers of a {kind} have no guardrails"
        raise InvalidError.of([ConfigError(message, path="guard.maxBlockedShare")])
    with transaction.atomic():
        row = locked(name, kind)
        revision = revision_of(row, wish.revision)
        _overtake(actor, row, revision, wish)
        _check_order(row, revision)
        return _begin(actor, row, revision, wish, "publish")


def _overtake(actor: Actor, row: ConfigDocument, revision: ConfigRevision, wish: Wish) -> None:
    """End a rollout to everybody whose place another one to everybody takes."""
    newest = newest_of(row)
    if newest is None or newest.stage != Stage.ROLLING or wish.canary is not None:
        return
    if subject_of(row).is_overtaken and revision.number > newest.revision.number:
        before = brief(newest)
        advance(row, newest, Halt(f"revision {revision.number} takes its place"))
        audit.record(actor, "halt", row.kind, row.name, before=before, after=brief(newest))


def _check_order(row: ConfigDocument, revision: ConfigRevision) -> None:
    newest = newest_of(row)
    if newest is None:
        return
    if newest.stage in SPREADING:
        raise ConflictError(
            f"revision {newest.revision.number} is being rolled out ({newest.stage}); "
            "promote it, halt it or roll it back first"
        )
    is_retry = newest.stage == Stage.HALTED and newest.revision_id == revision.pk
    if is_retry:
        return
    most = newest_number(row)
    if revision.number < most:
        raise ConflictError(too_old(revision.number, most))
    if revision.number == most:
        raise ConflictError(f"revision {revision.number} was published before; {GOING_BACK}")


def newest_number(row: ConfigDocument) -> int:
    """The highest that was published, 0 when none was."""
    return max(row.rollouts.values_list("revision__number", flat=True), default=0)


def too_old(number: int, newest: int) -> str:
    """Why a revision below the highest that was published is published no more."""
    return f"revision {number} is older than revision {newest}, which was published; {GOING_BACK}"


def _begin(actor: Actor, row: ConfigDocument, revision: ConfigRevision, wish: Wish, action: str) -> Rollout:
    canary, guard = wish.canary or Canary(), wish.guard
    rollout = Rollout.objects.create(
        document=row,
        revision=revision,
        stage=Stage.PENDING,
        canary_share=canary.share,
        canary_count=canary.count,
        max_error_share=None if guard is None else guard.max_error_share,
        max_blocked_share=None if guard is None else guard.max_blocked_share,
        min_requests=0 if guard is None else guard.min_requests,
        author=actor.name,
        comment=wish.comment[:MAX_REASON],
    )
    advance(row, rollout, Publish())
    audit.record(actor, action, row.kind, row.name, before=None, after=brief(rollout))
    return rollout


def promote(actor: Actor, name: str, rollout_id: int | None = None, kind: str = KIND) -> Rollout:
    """From the canary to everybody."""
    return _order(actor, name, rollout_id, "promote", Promote(), kind)


def halt(
    actor: Actor, name: str, reason: str = "", rollout_id: int | None = None, kind: str = KIND
) -> Rollout:
    """Nobody else gets the revision."""
    said = reason or f"halted by {actor.name}"
    return _order(actor, name, rollout_id, "halt", Halt(said), kind)


def _order(actor: Actor, name: str, rollout_id: int | None, action: str, event: Event, kind: str) -> Rollout:
    require(actor, Action.WRITE, kind)
    with transaction.atomic():
        row = locked(name, kind)
        rollout = _meant(row, rollout_id)
        before = brief(rollout)
        _ordered(row, rollout, event)
        audit.record(actor, action, kind, name, before=before, after=brief(rollout))
    return rollout


def _ordered(row: ConfigDocument, rollout: Rollout, event: Event) -> None:
    try:
        advance(row, rollout, event)
    except RefusedError as error:
        raise ConflictError(str(error)) from None


def _meant(row: ConfigDocument, rollout_id: int | None) -> Rollout:
    """The newest rollout. ``ConflictError`` when the order was meant for another."""
    rollout = newest_of(row)
    if rollout is None:
        raise ConflictError(f"{row.kind} {row.name} was never published")
    if rollout_id is not None and rollout_id != rollout.pk:
        raise ConflictError(f"rollout {rollout_id} is over; rollout {rollout.pk} is the newest")
    return rollout


def roll_back(
    actor: Actor, name: str, number: int | None = None, rollout_id: int | None = None, kind: str = KIND
) -> Rollout:
    """A new revision with an older content, for everybody at once.

    ``number`` None means the active revision while a newer one is under way or halted, and the one that was
    active before once that is complete.
    """
    require(actor, Action.WRITE, kind)
    with transaction.atomic():
        row = locked(name, kind)
        rollout = _meant(row, rollout_id)
        target = _earlier(row, rollout) if number is None else revision_of(row, number)
        if target.pk == rollout.revision_id:
            raise InvalidError.of([ConfigError("is what the rollout brings", path="revision")])
        _ordered(row, rollout, RollBack(f"rolled back by {actor.name} to revision {target.number}"))
        comment = f"back to revision {target.number}"
        revision = add_revision(actor, row, target.content, comment, target)
        ConfigDocument.objects.filter(pk=row.pk).update(
            content=target.content, comment=comment, version=row.version + 1, updated_at=timezone.now()
        )
        row.refresh_from_db()
        if (service := KINDS.of(kind)) is not None:
            service.link(row, None)
        return _begin(actor, row, revision, Wish(comment=comment), "rollback")


def _earlier(row: ConfigDocument, rollout: Rollout) -> ConfigRevision:
    """The revision that was active before a rollout."""
    if row.active is not None and row.active_id != rollout.revision_id:
        return row.active
    done = row.rollouts.filter(ended_at__isnull=False, revision__number__lt=rollout.revision.number)
    for other in done.select_related("revision"):
        if other.stage == Stage.COMPLETE:
            return other.revision
    raise ConflictError(
        f"there is no revision before {rollout.revision.number} that all workers ran; name one to go back to"
    )


def current(actor: Actor, name: str, kind: str = KIND) -> tuple[ConfigDocument, Rollout]:
    """A document and its newest rollout. ``MissingError`` when there is none."""
    require(actor, Action.READ, kind)
    row = found(name, kind)
    rollout = newest_of(row)
    if rollout is None:
        raise MissingError(f"{kind} {name} was never published")
    return row, rollout


def brief(rollout: Rollout) -> dict[str, Any]:
    """A rollout as it is listed and audited."""
    canary, guard = canary_of(rollout), guard_of(rollout)
    return {
        "id": rollout.pk,
        "revision": rollout.revision.number,
        "stage": str(rollout.stage),
        "reason": rollout.reason,
        "canary": None if canary is None else canary_text(canary),
        "guard": None if guard is None else _guard(guard),
        "author": rollout.author,
        "comment": rollout.comment,
        "createdAt": rollout.created_at.isoformat(),
        "endedAt": rollout.ended_at and rollout.ended_at.isoformat(),
    }


def _guard(guard: Guard) -> dict[str, Any]:
    said = {
        "maxErrorShare": guard.max_error_share,
        "maxBlockedShare": guard.max_blocked_share,
        "minRequests": guard.min_requests,
    }
    return {name: value for name, value in said.items() if value is not None}


def detailed(row: ConfigDocument, rollout: Rollout) -> dict[str, Any]:
    """A rollout with its workers."""
    acks: dict[str, RevisionAck] = {ack.worker: ack for ack in rollout.acks.all()}
    running = Q(pk__in=row.running.values("worker"))
    known = Q(is_awaited=True) | Q(applied__document=row) | running | Q(node_id__in=list(acks))
    rows = list(workers_of(row).filter(known).select_related("applied"))
    here = {worker.node_id for worker in rows if worker.is_awaited}
    applied = run_by(row, rows)
    workers = [_worker(worker, applied.get(worker.node_id), acks.get(worker.node_id)) for worker in rows]
    return {
        **brief(rollout),
        "active": None if row.active is None else row.active.number,
        "workersPresent": len(here),
        "workersApplied": sum(
            ack.outcome == Outcome.APPLIED for worker, ack in acks.items() if worker in here
        ),
        "workers": workers,
    }


def _worker(worker: Worker, applied: int | None, ack: RevisionAck | None) -> dict[str, Any]:
    return {
        "worker": worker.node_id,
        "pool": worker.pool,
        "present": worker.is_awaited,
        "seenAt": worker.seen_at.isoformat(),
        "applied": applied,
        "outcome": "waiting" if ack is None else str(ack.outcome),
        "problems": [] if ack is None else ack.problems,
        "requests": 0 if ack is None else ack.requests,
        "errors": 0 if ack is None else ack.errors,
        "blocked": 0 if ack is None else ack.blocked,
    }
