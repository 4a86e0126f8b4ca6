"""What is known of workers: who is there, and what each said of the sets it was sent.

Servers write in batches and at their own pace; the last answers of each worker are kept, and workers that
have not been seen for days are forgotten. Everything here blocks on the database.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from controlplane.configs import delivery
from controlplane.configs.subjects import BY_TYPE
from controlplane.core.errors import MissingError
from controlplane.core.roles import Action, Actor, require
from controlplane.policies import answers as policies
from controlplane.xds.models import MAX_MESSAGE, MAX_TYPE_URL, MAX_VERSION, Outcome, Worker, WorkerAnswer
from controlplane.xds.nodes import NodeKind
from controlplane.xds.subscriptions import Answer
from dataplane.xds.messages import GUARDRAILS, Node

KIND: Final = "Worker"
KEPT_ANSWERS: Final = 20
"""Of each worker."""
PRUNED_AT_ONCE: Final = 500
SEEN_WITHIN: Final = timedelta(seconds=45)
"""A worker whose server has not said for this long that it is there counts as gone."""
BACK_WITHIN: Final = timedelta(seconds=20)
"""Rollouts wait for a worker for so long after its stream has ended, because it may only have been cut."""
FORGOTTEN_AFTER: Final = timedelta(days=7)
MAX_WORKERS: Final = 20_000
MAX_METADATA_BYTES: Final = 4096
MAX_COMPONENT: Final = 32


def arrived(node: Node, user: str, kind: NodeKind = NodeKind.PICKER) -> None:
    """A worker has opened a stream."""
    now = timezone.now()
    metadata = node.metadata if len(json.dumps(node.metadata)) <= MAX_METADATA_BYTES else {}
    values = {"kind": kind, "pool": node.cluster, "metadata": metadata, "user": user}
    times = {"connected_at": now, "seen_at": now, "is_connected": True}
    Worker.objects.update_or_create(node_id=node.id, defaults={**values, **times})


def joined(node_ids: Collection[str]) -> None:
    """These workers have subscribed to their configurations."""
    delivery.joined(node_ids)


def present(node_ids: Collection[str]) -> None:
    """These workers have a stream at this moment."""
    for batch in _batches(sorted(node_ids)):
        Worker.objects.filter(node_id__in=batch).update(seen_at=timezone.now(), is_connected=True)


def left(node_ids: Collection[str]) -> None:
    """These workers' streams have ended."""
    for batch in _batches(sorted(node_ids)):
        Worker.objects.filter(node_id__in=batch).update(seen_at=timezone.now(), is_connected=False)


def sweep() -> None:
    """Wait no longer for workers that are not there."""
    now = timezone.now()
    is_gone = Q(is_connected=False, seen_at__lt=now - BACK_WITHIN) | Q(seen_at__lt=now - SEEN_WITHIN)
    gone = list(Worker.objects.filter(is_gone, is_awaited=True).values_list("node_id", flat=True))
    for batch in _batches(gone):
        delivery.gone(batch)


def answered(answers: Sequence[tuple[str, Answer]]) -> None:
    """Write down what workers, by node id, said."""
    now = timezone.now()
    by_node = dict(
        Worker.objects.filter(node_id__in={node for node, _ in answers}).values_list("node_id", "pk")
    )
    WorkerAnswer.objects.bulk_create(
        WorkerAnswer(
            worker_id=by_node[node],
            type_url=answer.type_url[:MAX_TYPE_URL],
            outcome=Outcome.ACK if answer.refusal is None else Outcome.NACK,
            version=str(answer.version)[:MAX_VERSION],
            in_use=answer.in_use[:MAX_VERSION],
            message="" if answer.refusal is None else answer.refusal.message[:MAX_MESSAGE],
            problems=[] if answer.refusal is None else msgspec.to_builtins(answer.refusal.problems),
            at=now,
        )
        for node, answer in answers
        if node in by_node
    )
    delivery.answered([(node, answer) for node, answer in answers if answer.type_url in BY_TYPE])
    policies.answered([(node, answer) for node, answer in answers if answer.type_url == GUARDRAILS])


def prune() -> None:
    """Of each worker keep the last ``KEPT_ANSWERS`` answers; looks at the ``PRUNED_AT_ONCE`` with most."""
    counted = Worker.objects.annotate(count=Count("answers")).filter(count__gt=KEPT_ANSWERS)
    for worker in counted.order_by("-count").values_list("pk", flat=True)[:PRUNED_AT_ONCE]:
        rows = WorkerAnswer.objects.filter(worker_id=worker)
        oldest = rows.values_list("pk", flat=True)[KEPT_ANSWERS - 1]
        rows.filter(pk__lt=oldest).delete()


def forget() -> None:
    """Remove workers that have not been seen for long, and the oldest beyond the cap."""
    Worker.objects.filter(seen_at__lt=timezone.now() - FORGOTTEN_AFTER).delete()
    beyond = list(Worker.objects.order_by("-seen_at").values_list("pk", flat=True)[MAX_WORKERS:])
    Worker.objects.filter(pk__in=beyond).delete()


def rows(actor: Actor) -> QuerySet[Worker]:
    """All workers, with their answers."""
    require(actor, Action.READ, KIND)
    found = Worker.objects.select_related("applied__document").prefetch_related("answers")
    return found.annotate(policies=Count("running"))


def find(actor: Actor, node_id: str) -> Worker:
    """One worker. ``MissingError`` when there is none of this name."""
    row = rows(actor).filter(node_id=node_id).first()
    if row is None:
        raise MissingError(f"there is no worker {node_id}")
    return row


def describe(row: Any) -> dict[str, Any]:
    """A worker of ``rows``, and of each type its last answer."""
    latest: dict[str, Any] = {}
    for answer in row.answers.all():
        latest.setdefault(answer.type_url, _answer(answer))
    return {
        "id": row.node_id,
        "kind": row.kind,
        "pool": row.pool,
        "component": component_of(row.metadata),
        "version": version_of(row.metadata),
        "user": row.user,
        "metadata": row.metadata,
        "connected": row.is_connected and timezone.now() - row.seen_at < SEEN_WITHIN,
        "connectedAt": row.connected_at.isoformat(),
        "seenAt": row.seen_at.isoformat(),
        "applied": None
        if row.applied is None
        else {
            "document": row.applied.document.name,
            "revision": row.applied.number,
            "digest": row.applied.digest,
        },
        "policies": row.policies if row.kind == NodeKind.PROCESSOR else None,
        "types": list(latest.values()),
    }


def component_of(metadata: Mapping[str, Any]) -> str:
    """What kind of program a worker says it is; empty = it does not say."""
    found = metadata.get("component")
    return found[:MAX_COMPONENT] if isinstance(found, str) else ""


def version_of(metadata: Mapping[str, Any]) -> str:
    """Of which release a worker says it is; empty = it does not say."""
    found = metadata.get("version")
    return found[:MAX_COMPONENT] if isinstance(found, str) else ""


def describe_fully(row: Any) -> dict[str, Any]:
    """A worker with the policies it enforces, and all its answers that are kept, newest first."""
    running = row.running.select_related("document", "revision").order_by("document__name")
    return {
        **describe(row),
        "running": [
            {"document": each.document.name, "revision": each.revision.number, "digest": each.revision.digest}
            for each in running
        ],
        "answers": [_answer(answer) for answer in row.answers.all()],
    }


def _answer(row: WorkerAnswer) -> dict[str, Any]:
    return {
        "type": row.type_url,
        "outcome": row.outcome,
        "version": row.version,
        "inUse": row.in_use,
        "message": row.message,
        "problems": row.problems,
        "at": row.at.isoformat(),
    }


def _batches(ids: list[str], size: int = 500) -> list[list[str]]:
    return [ids[start : start + size] for start in range(0, len(ids), size)]
