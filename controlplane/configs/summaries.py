"""Configurations as lists show them: how far each is, in one query for all of them."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Max, OuterRef, QuerySet, Subquery

from controlplane.configs.models import Rollout
from controlplane.configs.rollout import Stage

_STAGES: Final[dict[str | None, tuple[str, str]]] = {
    None: ("idle", "Draft"),
    Stage.PENDING: ("warn", "Pending"),
    Stage.CANARY: ("warn", "Canary"),
    Stage.ROLLING: ("warn", "Rolling out"),
    Stage.HALTED: ("bad", "Halted"),
    Stage.COMPLETE: ("ok", "Active"),
    Stage.ROLLED_BACK: ("idle", "Rolled back"),
}
"""Stage of the newest rollout, None before the first, and the kind of status and the words for it."""


def with_state(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Documents with ``newest`` (a revision's number), and ``stage`` of their newest rollouts."""
    stage = Rollout.objects.filter(document=OuterRef("pk")).order_by("-id").values("stage")[:1]
    found: QuerySet[Any] = rows.select_related("active").annotate(
        newest=Max("revisions__number"), stage=Subquery(stage)
    )
    return found


def state_of(row: Any) -> tuple[str, str]:
    """Kind of status and words, of a row ``with_state``."""
    return _STAGES[row.stage]


def draft_of(row: Any) -> int | None:
    """The newest revision where it is not the active one."""
    active = None if row.active is None else row.active.number
    return None if row.newest == active else row.newest
