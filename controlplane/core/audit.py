"""Writes down who changed what. Services call it inside the transaction of the change."""

from __future__ import annotations

from typing import Any

from controlplane.core import changes, requests
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Actor

Document = dict[str, Any]


def record(
    actor: Actor, action: str, kind: str, name: str, *, before: Document | None, after: Document | None
) -> None:
    """One entry; the change is noticed when its transaction is committed. Documents must hold no secrets."""
    AuditEntry.objects.create(
        actor=actor.name,
        channel=actor.channel,
        action=action,
        kind=kind,
        name=name,
        request_id=requests.current(),
        before=before,
        after=after,
    )
    changes.bump()
