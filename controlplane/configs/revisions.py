"""Revisions of a document: made, found, described, and which of them workers run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from controlplane.configs.content import digest_of, parsed
from controlplane.configs.models import ConfigDocument, ConfigRevision, Running
from controlplane.configs.subjects import subject_of
from controlplane.core.errors import MissingError
from controlplane.core.roles import Actor
from controlplane.xds.models import Worker


def add_revision(
    actor: Actor, row: ConfigDocument, text: str, comment: str, parent: ConfigRevision | None
) -> ConfigRevision:
    """The next revision of a document."""
    newest = row.revisions.first()
    return ConfigRevision.objects.create(
        document=row,
        number=1 if newest is None else newest.number + 1,
        content=text,
        digest=digest_of(text),
        author=actor.name,
        comment=comment,
        parent=parent,
    )


def revision_of(row: ConfigDocument, number: int | None) -> ConfigRevision:
    """A revision, the newest for None. ``MissingError`` if there is none of this number."""
    found = row.revisions.all() if number is None else row.revisions.filter(number=number)
    revision = found.first()
    if revision is None:
        raise MissingError(f"{row.kind} {row.name} has no revision {number}")
    return revision


def run_by(row: ConfigDocument, found: Collection[Worker]) -> dict[str, int]:
    """Node id -> number of the document's revision that it runs; those that run none are left out.

    The workers come with what they have applied.
    """
    if subject_of(row).is_one_of_many:
        rows = Running.objects.filter(document=row, worker__in=[worker.pk for worker in found])
        return dict(rows.values_list("worker__node_id", "revision__number"))
    return {
        worker.node_id: worker.applied.number
        for worker in found
        if worker.applied is not None and worker.applied.document_id == row.pk
    }


def note_run(row: ConfigDocument, worker: Worker, revision: ConfigRevision) -> None:
    """A worker runs a revision now, unless it ran a newer one before."""
    if run_by(row, [worker]).get(worker.node_id, 0) >= revision.number:
        return
    if subject_of(row).is_one_of_many:
        Running.objects.update_or_create(worker=worker, document=row, defaults={"revision": revision})
    else:
        Worker.objects.filter(pk=worker.pk).update(applied=revision)


def describe(revision: ConfigRevision, *, whole: bool = False) -> dict[str, Any]:
    """A revision as it is listed; ``whole`` with its content."""
    shown: dict[str, Any] = {
        "number": revision.number,
        "digest": revision.digest,
        "author": revision.author,
        "comment": revision.comment,
        "parent": None if revision.parent is None else revision.parent.number,
        "createdAt": revision.created_at.isoformat(),
    }
    return shown | {"content": parsed(revision.content)} if whole else shown
