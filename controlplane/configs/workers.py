"""What workers should run, and what becomes of it.

A worker is there from the moment it subscribes until it has been gone for a while
(``controlplane.xds.workers``); rollouts wait for those who are there. Who should run what is computed for
many workers at once, with a few queries; only who is given a revision for the first time costs a transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from django.db import transaction
from django.db.models import Max, OuterRef, Subquery

from controlplane.configs import rollouts
from controlplane.configs.models import ConfigDocument, ConfigRevision, RevisionAck, Rollout
from controlplane.configs.revisions import note_run, revision_of
from controlplane.configs.rollout import (
    SPREADING,
    Ack,
    Counts,
    Nack,
    Outcome,
    Stage,
    State,
    WorkerLeft,
    desired_number,
    is_reached,
    judge,
    step,
)
from controlplane.configs.subjects import PICKERS, SUBJECTS, OneEach
from controlplane.core import audit, changes
from controlplane.core.errors import Detail, InvalidError, MissingError
from controlplane.core.roles import Action, Actor, Channel, Role, require
from controlplane.xds.models import Worker
from dataplane.config.epp_checks import KIND
from dataplane.errors import ConfigError

WORKER: Final = "Worker"
MAX_PROBLEMS: Final = 50
MAX_PROBLEM_CHARACTERS: Final = 2000
BATCH: Final = 500

T = TypeVar("T")
Pair = tuple[str, str]
"""Worker, and its pool or payload processor."""
Key = tuple[int, int]
"""A document's key, and the number of a revision."""


class Desired(NamedTuple):
    """What a worker should run."""

    document: str
    revision: int
    digest: str
    content: str
    rollout: int
    """The newest rollout of the revision."""


def desired(pairs: Collection[Pair], subject: OneEach = PICKERS) -> dict[Pair, Desired]:
    """What each worker should run; those for whom nothing is published are left out.

    Workers whom a rollout reaches are noted as having been sent its revision.
    """
    by_document = _by_document(pairs, subject)
    newest = newest_rollouts(by_document)
    held = _applied({worker for worker, _ in pairs})
    numbers: dict[Pair, tuple[ConfigDocument, int]] = {}
    for document, members in by_document.items():
        rollout = newest.get(document.pk)
        state = None if rollout is None else reach(document, rollout, {worker for worker, _ in members})
        for pair in members:
            applied_document, applied = held.get(pair[0], (None, None))
            number = desired_number(
                state,
                0 if rollout is None else rollout.revision.number,
                pair[0],
                active=None if document.active is None else document.active.number,
                applied=applied if applied_document == document.pk else None,
            )
            if number is not None:
                numbers[pair] = (document, number)
    keys = {pair: (document.pk, number) for pair, (document, number) in numbers.items()}
    made = contents({document.pk: document for document, _ in numbers.values()}, set(keys.values()))
    return {pair: made[key] for pair, key in keys.items() if key in made}


def _by_document(pairs: Iterable[Pair], subject: OneEach) -> dict[ConfigDocument, list[Pair]]:
    members: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        members[pair[1]].append(pair)
    found: dict[ConfigDocument, list[Pair]] = defaultdict(list)
    for clusters in _batches(sorted(members)):
        for cluster, document in subject.documents(clusters):
            found[document] += members[cluster]
    return found


def newest_rollouts(documents: Iterable[ConfigDocument]) -> dict[int, Rollout]:
    """The newest rollout of each document, by the document's key."""
    found: dict[int, Rollout] = {}
    newest = Rollout.objects.filter(document=OuterRef("document")).order_by("-id").values("id")[:1]
    for ids in _batches(sorted(document.pk for document in documents)):
        rows = Rollout.objects.filter(document__in=ids, pk=Subquery(newest)).select_related("revision")
        found |= {row.document_id: row for row in rows}
    return found


def _applied(worker_ids: Collection[str]) -> dict[str, tuple[int, int]]:
    """Worker -> document and number of the revision that it runs."""
    found: dict[str, tuple[int, int]] = {}
    for ids in _batches(sorted(worker_ids)):
        rows = Worker.objects.filter(node_id__in=ids, applied__isnull=False)
        for worker, document, number in rows.values_list("node_id", "applied__document", "applied__number"):
            found[worker] = (document, number)
    return found


def reach(document: ConfigDocument, rollout: Rollout, worker_ids: Collection[str]) -> State:
    """The rollout's state after everybody it reaches has been noted as having been sent its revision."""
    if rollout.stage not in SPREADING:
        return State(stage=Stage(rollout.stage))
    state = rollouts.load(document, rollout)
    if all(worker in state.sent for worker in worker_ids if is_reached(state, worker)):
        return state
    with transaction.atomic():  # two servers must not make two canaries
        rollouts.locked(document.name, document.kind)
        rollout.refresh_from_db()
        state = rollouts.load(document, rollout)
        new = [worker for worker in sorted(worker_ids) if is_reached(state, worker)]
        if rollout.stage in SPREADING:
            RevisionAck.objects.bulk_create(
                (RevisionAck(rollout=rollout, worker=worker, outcome=Outcome.SENT) for worker in new),
                ignore_conflicts=True,
            )
    return state


def contents(documents: Mapping[int, ConfigDocument], wanted: Collection[Key]) -> dict[Key, Desired]:
    """Revisions with their contents, each read once however many workers should run it.

    ``documents`` are by key. What was never published is left out.
    """
    made: dict[Key, Desired] = {}
    for ids in _batches(sorted(documents)):
        found = ConfigRevision.objects.filter(document__in=ids, number__in={number for _, number in wanted})
        for row in found.annotate(newest=Max("rollouts__id")).order_by():
            key = (row.document_id, row.number)
            if key in wanted and row.newest is not None:
                name = documents[row.document_id].name
                made[key] = Desired(name, row.number, row.digest, row.content, row.newest)
    return made


def joined(worker_ids: Collection[str]) -> None:
    """These workers have subscribed to their configurations: rollouts wait for them."""
    for ids in _batches(sorted(worker_ids)):
        Worker.objects.filter(node_id__in=ids, is_awaited=False).update(is_awaited=True)


def gone(worker_ids: Collection[str]) -> None:
    """These workers are not waited for any more; others may take their places in a canary."""
    for row in Worker.objects.filter(node_id__in=worker_ids, is_awaited=True):
        with transaction.atomic():
            Worker.objects.filter(pk=row.pk).update(is_awaited=False)
            for found in _under_way(row):
                document = rollouts.locked(found.name, found.kind)
                rollout = rollouts.newest_of(document)
                if rollout is not None and rollout.stage in SPREADING:
                    before = rollouts.brief(rollout)
                    state = step(rollouts.load(document, rollout), WorkerLeft(row.node_id))
                    _record(_as(row), document, rollout, before, state)
                    changes.bump()


def _under_way(row: Worker) -> list[ConfigDocument]:
    """Documents of a worker whose rollouts wait for it, in one order for everybody who locks them."""
    kinds = [subject.kind for subject in SUBJECTS.values() if subject.node == row.kind]
    spreading = Rollout.objects.filter(stage__in=SPREADING).values("document")
    found = ConfigDocument.objects.filter(kind__in=kinds, pk__in=spreading).order_by("pk")
    return [document for document in found if rollouts.workers_of(document).filter(pk=row.pk).exists()]


def acknowledge(
    actor: Actor,
    worker: str,
    document: str,
    number: int,
    problems: Sequence[Detail],
    rollout_id: int,
    kind: str = KIND,
) -> None:
    """A worker runs a revision, or refuses it because of problems. Repeating it changes nothing.

    A refusal counts in the rollout that brought the revision, and in no other.
    """
    require(actor, Action.FOLLOW, WORKER)
    with transaction.atomic():
        row = rollouts.locked(document, kind)
        revision = revision_of(row, number)
        known = _known(row, worker)
        if not problems:
            note_run(row, known, revision)
        rollout = rollouts.newest_of(row)
        if rollout is None or rollout.revision_id != revision.pk:
            return
        if problems and rollout_id != rollout.pk:
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


def observe(
    actor: Actor,
    worker: str,
    document: str,
    number: int,
    requests: int,
    errors: int,
    blocked: int = 0,
    kind: str = KIND,
) -> None:
    """A worker has counted so much since it runs a revision; the guard, if there is one, judges it."""
    require(actor, Action.FOLLOW, WORKER)
    for name, count in (("errors", errors), ("blocked", blocked)):
        if not 0 <= count <= requests < 1 << 60:
            raise InvalidError.of([ConfigError("must be at most the number of requests", path=name)])
    with transaction.atomic():
        row = rollouts.locked(document, kind)
        rollout = rollouts.newest_of(row)
        if rollout is None or rollout.revision.number != number:
            return
        changed = rollout.acks.filter(worker=worker, outcome=Outcome.APPLIED).update(
            requests=requests, errors=errors, blocked=blocked
        )
        guard = rollouts.guard_of(rollout)
        if not changed or guard is None or rollout.stage not in SPREADING:
            return
        applied = rollout.acks.filter(outcome=Outcome.APPLIED)
        observed = applied.values_list("requests", "errors", "blocked")
        tripped = judge(guard, (Counts(*each) for each in observed))
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
        audit.record(actor, str(rollout.stage), row.kind, row.name, before=before, after=after)


def _as(row: Worker) -> Actor:
    return Actor(row.user, Role.WORKER, Channel.AUTOMATION)


def _known(row: ConfigDocument, worker: str) -> Worker:
    found = rollouts.workers_of(row).select_related("applied").filter(node_id=worker).first()
    if found is None:
        raise MissingError(f"the worker {worker} does not follow {row.kind} {row.name}; it subscribes first")
    return found


def _bounded(problem: Detail) -> dict[str, str]:
    return {
        "path": problem.path[:MAX_PROBLEM_CHARACTERS],
        "message": problem.message[:MAX_PROBLEM_CHARACTERS],
    }


def _text(problem: dict[str, str]) -> str:
    return f"{problem['path']}: {problem['message']}" if problem["path"] else problem["message"]


def _batches(values: list[T]) -> Iterable[list[T]]:
    return (values[start : start + BATCH] for start in range(0, len(values), BATCH))
