"""Revisions of a document: made, found, described."""

from __future__ import annotations

from typing import Any

from controlplane.configs.content import digest_of, parsed
from controlplane.configs.models import ConfigDocument, ConfigRevision
from controlplane.core.errors import MissingError
from controlplane.core.roles import Actor


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
