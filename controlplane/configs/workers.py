"""What workers ask and report: who should run which revision, and what became of it.

A worker is there while it asks; one that has not asked for ``GONE_AFTER`` is not waited for any more. Every
call is small, and most write nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from django.db import transaction
from django.utils import timezone

from controlplane.configs import rollouts
from controlplane.configs.models import ConfigDocument, Follower, PoolBinding, RevisionAck, Rollout
from controlplane.configs.revisions import revision_of
from controlplane.configs.rollout import (
    SPREADING,
    Ack,
    Nack,
    Outcome,
    Stage,
    State,
    WorkerJoined,
    WorkerLeft,
    desired_number,
    judge,
    step,
)
from controlplane.core import audit
from controlplane.core.errors import Detail, InvalidError, MissingError
from controlplane.core.roles import Action, Actor, require
from dataplane.config.epp_checks import KIND
from dataplane.errors import ConfigError
from epp.objects.schema import check_name

WORKER: Final = "Worker"
SEEN_EVERY: Final = timedelta(seconds=10)
"""How often it is written down that a worker is there."""
GONE_AFTER: Final = timedelta(seconds=60)
MAX_FOLLOWERS: Final = 10_000
"""Workers of one document."""
MAX_PROBLEMS: Final = 50
MAX_PROBLEM_CHARACTERS: Final = 2000


class Desired(msgspec.Struct, frozen=True, rename="camel"):
    """What a worker should run."""

    document: str
    revision: int
    digest: str
    content: str
    rollout: int | None
    """The rollout that brings it."""
    is_guarded: bool
    """Whether the worker should report requests and errors once it runs this."""

    @property
    def etag(self) -> str:
        """The same for the same revision of the same rollout, as long as it is guarded or not."""
        return f"{self.document}/{self.revision}/{self.rollout or 0}" + (
            "/guarded" if self.is_guarded else ""
        )


def desired(actor: Actor, pool: str, worker: str) -> Desired | None:
    """What a worker should run for a pool; None when nothing is published for it.

    ``MissingError`` when no document configures the pool.
    """
    require(actor, Action.FOLLOW, WORKER)
    _check(worker, "worker")
    _check(pool, "pool")
    binding = PoolBinding.objects.select_related("document__active").filter(pool=pool).first()
    if binding is None:
        raise MissingError(f"no {KIND} is for the pool {pool}")
    # Most of the time nothing is to be written, and whoever only reads waits for nobody.
    row = binding.document
    follower = row.followers.filter(worker=worker).first()
    if follower is not None and _is_fresh(follower, pool):
        found, is_noted = _look(row, follower)
        if is_noted:
            return found
    with transaction.atomic():
        row = rollouts.locked(row.name)
        found, is_noted = _look(row, _seen(row, pool, worker))
        if found is not None and found.rollout is not None and not is_noted:
            RevisionAck.objects.create(rollout_id=found.rollout, worker=worker, outcome=Outcome.SENT)
        return found


def _look(row: ConfigDocument, follower: Follower) -> tuple[Desired | None, bool]:
    """What a worker should run, and whether it is written down that it has been given that."""
    worker = follower.worker
    rollout = rollouts.newest_of(row)
    state, revision = None, None
    if rollout is not None:
        revision = rollout.revision
        # Who is in the canary depends on all workers; whom the other stages reach does not.
        is_canary = rollout.stage == Stage.CANARY
        state = rollouts.load(row, rollout) if is_canary else State(stage=Stage(rollout.stage))
    number = desired_number(
        state,
        0 if revision is None else revision.number,
        worker,
        active=None if row.active is None else row.active.number,
        applied=follower.applied,
    )
    if number is None:
        return None, True
    if rollout is None or revision is None or revision.number != number:
        held = revision_of(row, number)
        return Desired(row.name, number, held.digest, held.content, None, False), True
    is_spreading = rollout.stage in SPREADING
    is_guarded = is_spreading and rollouts.guard_of(rollout) is not None
    found = Desired(row.name, number, revision.digest, revision.content, rollout.pk, is_guarded)
    return found, not is_spreading or rollout.acks.filter(worker=worker).exists()


def acknowledge(
    actor: Actor, worker: str, document: str, number: int, problems: Sequence[Detail] = ()
) -> None:
    """A worker runs a revision, or refuses it because of problems. Repeating it changes nothing."""
    require(actor, Action.FOLLOW, WORKER)
    _check(worker, "worker")
    with transaction.atomic():
        row = rollouts.locked(document)
        revision = revision_of(row, number)
        follower = _follower(row, worker)
        if not problems and (follower.applied is None or number > follower.applied):
            follower.applied = number
            follower.save(update_fields=["applied"])
        rollout = rollouts.newest_of(row)
        if rollout is None or rollout.revision_id != revision.pk:
            return
        before = rollouts.brief(rollout)
        found = [_bounded(problem) for problem in problems[:MAX_PROBLEMS]]
        state = rollouts.load(row, rollout)
        event = Nack(worker, _text(found[0])) if found else Ack(worker)
        if found and worker in state.applied:
            return
        rollout.acks.update_or_create(
            worker=worker,
            defaults={"outcome": Outcome.REJECTED if found else Outcome.APPLIED, "problems": found},
        )
        _record(actor, row, rollout, before, step(state, event))


def observe(actor: Actor, worker: str, document: str, number: int, requests: int, errors: int) -> None:
    """A worker has counted so many requests and errors since it runs a revision; the guard judges them."""
    require(actor, Action.FOLLOW, WORKER)
    if not 0 <= errors <= requests < 1 << 60:
        raise InvalidError.of([ConfigError("must be at most the number of requests", path="errors")])
    with transaction.atomic():
        row = rollouts.locked(document)
        rollout = rollouts.newest_of(row)
        if rollout is None or rollout.revision.number != number:
            return
        changed = rollout.acks.filter(worker=worker, outcome=Outcome.APPLIED).update(
            requests=requests, errors=errors
        )
        guard = rollouts.guard_of(rollout)
        if not changed or guard is None or rollout.stage not in SPREADING:
            return
        observed = rollout.acks.filter(outcome=Outcome.APPLIED).values_list("requests", "errors")
        tripped = judge(guard, observed)
        if tripped is not None:
            before = rollouts.brief(rollout)
            _record(actor, row, rollout, before, step(rollouts.load(row, rollout), tripped))


def _record(
    actor: Actor, row: ConfigDocument, rollout: Rollout, before: dict[str, Any], state: State
) -> None:
    """Write a state down; a change of the stage is audited, though no person asked for it."""
    rollouts.save(row, rollout, state)
    if rollout.stage != before["stage"]:
        after = rollouts.brief(rollout)
        audit.record(actor, str(rollout.stage), KIND, row.name, before=before, after=after)


def _seen(row: ConfigDocument, pool: str, worker: str) -> Follower:
    """Note that a worker is there, and who is not any more."""
    now = timezone.now()
    follower = row.followers.filter(worker=worker).first()
    if follower is not None and _is_fresh(follower, pool):
        return follower
    if follower is not None and follower.is_present and follower.pool == pool:
        follower.seen_at = now
        follower.save(update_fields=["seen_at"])
        _sweep(row)
        return follower
    if follower is None:
        _make_room(row)
        follower = Follower(document=row, worker=worker)
    follower.pool, follower.seen_at, follower.is_present = pool, now, True
    follower.save()
    _move(row, WorkerJoined(worker))
    _sweep(row)
    return follower


def _is_fresh(follower: Follower, pool: str) -> bool:
    """Whether it need not be written down again that a worker is there."""
    is_known = follower.is_present and follower.pool == pool
    return is_known and timezone.now() - follower.seen_at < SEEN_EVERY


def _sweep(row: ConfigDocument) -> None:
    """Wait no longer for workers that are gone."""
    gone = row.followers.filter(is_present=True, seen_at__lt=timezone.now() - GONE_AFTER)
    for follower in list(gone):
        follower.is_present = False
        follower.save(update_fields=["is_present"])
        _move(row, WorkerLeft(follower.worker))


def _move(row: ConfigDocument, event: WorkerJoined | WorkerLeft) -> None:
    rollout = rollouts.newest_of(row)
    if rollout is not None and rollout.stage in SPREADING:
        rollouts.advance(row, rollout, event)


def _make_room(row: ConfigDocument) -> None:
    """Forget who has been gone longest when there are too many; ``InvalidError`` when all are there."""
    if row.followers.count() < MAX_FOLLOWERS:
        return
    gone = row.followers.filter(is_present=False).order_by("seen_at").first()
    if gone is None:
        raise InvalidError.of([ConfigError(f"more than {MAX_FOLLOWERS} workers follow it", path="worker")])
    gone.delete()


def _follower(row: ConfigDocument, worker: str) -> Follower:
    follower = row.followers.filter(worker=worker).first()
    if follower is None:
        raise MissingError(f"the worker {worker} does not follow {KIND} {row.name}; it asks for it first")
    return follower


def _check(name: str, path: str) -> None:
    try:
        check_name(name, path)
    except ConfigError as error:
        raise InvalidError.of([error]) from None


def _bounded(problem: Detail) -> dict[str, str]:
    return {
        "path": problem.path[:MAX_PROBLEM_CHARACTERS],
        "message": problem.message[:MAX_PROBLEM_CHARACTERS],
    }


def _text(problem: dict[str, str]) -> str:
    return f"{problem['path']}: {problem['message']}" if problem["path"] else problem["message"]
