"""Reads the audit log: who changed what, when, and what the change was.

Entries are asked for newest first, a page at a time from a place in the log: new entries do not move the
pages that somebody is reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import QuerySet

from controlplane.core.diff import changes
from controlplane.core.documents import Change
from controlplane.core.errors import MissingError
from controlplane.core.models import AuditEntry
from controlplane.core.resources import is_storable
from controlplane.core.roles import Action, Actor, require

AUDIT_ENTRY: Final = "AuditEntry"
PAGE: Final = 30
MAX_ID: Final = (1 << 63) - 1
_UNTOLD: Final = ("metadata.resourceVersion", "status")
"""What changes of itself with every change, or follows from others."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which entries; empty means all."""

    kind: str = ""
    name: str = ""
    user: str = ""
    action: str = ""
    request: str = ""
    """Its id."""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries, newest first, and where the ones before and after them are asked for."""

    entries: list[AuditEntry]
    older: int | None
    """Ask for what is before this entry; None when there is nothing."""
    newer: int | None


def rows(actor: Actor) -> QuerySet[AuditEntry]:
    """All entries. ``ForbiddenError`` for viewers."""
    require(actor, Action.READ, AUDIT_ENTRY)
    return AuditEntry.objects.all()


def page(actor: Actor, question: Question, before: int | None = None, after: int | None = None) -> Page:
    """The newest entries, or those next to one: older than ``before``, or newer than ``after``."""
    found = _asked(rows(actor), question)
    if after is not None:
        near = list(found.filter(pk__gt=after).order_by("pk")[: PAGE + 1])
        shown = near[PAGE - 1 :: -1] if len(near) > PAGE else near[::-1]
        more_newer, more_older = len(near) > PAGE, True
    else:
        near = list((found if before is None else found.filter(pk__lt=before))[: PAGE + 1])
        shown = near[:PAGE]
        more_newer, more_older = before is not None, len(near) > PAGE
    return Page(
        shown,
        older=shown[-1].pk if shown and more_older else None,
        newer=shown[0].pk if shown and more_newer else None,
    )


def _asked(found: QuerySet[AuditEntry], question: Question) -> QuerySet[AuditEntry]:
    texts = {
        "kind": question.kind,
        "name": question.name,
        "actor": question.user,
        "action": question.action,
        "request_id": question.request,
    }
    for column, text in texts.items():
        if text:
            found = found.filter(**{column: text}) if is_storable(text) else found.none()
    if question.since is not None:
        found = found.filter(at__gte=question.since)
    if question.until is not None:
        found = found.filter(at__lte=question.until)
    return found


def entry(actor: Actor, number: int) -> AuditEntry:
    """One entry. ``MissingError`` when there is none of this number."""
    found = rows(actor).filter(pk=number).first() if 0 < number <= MAX_ID else None
    if found is None:
        raise MissingError(f"the audit log has no entry {number}")
    return found


def told(row: AuditEntry) -> list[Change]:
    """The values a change changed; none for an object that was made or deleted."""
    if row.before is None or row.after is None:
        return []
    return [change for change in changes(row.before, row.after) if not _is_untold(change.path)]


def _is_untold(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}.") for each in _UNTOLD)


def describe(row: AuditEntry) -> dict[str, Any]:
    """An entry as the API shows it."""
    return {
        "id": row.pk,
        "at": row.at.isoformat(),
        "actor": row.actor,
        "channel": row.channel,
        "action": row.action,
        "kind": row.kind,
        "name": row.name,
        "requestId": row.request_id,
        "before": row.before,
        "after": row.after,
    }
