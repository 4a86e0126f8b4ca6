"""How long usage is kept: records for weeks, totals of hours for months, totals of days for years."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import Model
from django.utils import timezone

from controlplane.core import audit
from controlplane.core.users import SYSTEM
from controlplane.usage.intake import MAX_DEAD_LETTERS
from controlplane.usage.models import DailyUsage, DeadLetter, HourlyUsage, LedgerEntry

BATCH: Final = 2000
KIND: Final = "UsageRetention"


def clean_up() -> dict[str, int]:
    """Delete what is older than the settings say; how much of each. Audited when there was anything."""
    days: dict[str, int] = settings.USAGE_RETENTION_DAYS
    deleted = {
        "records": _delete(LedgerEntry, "at", days["records"]),
        "hourly": _delete(HourlyUsage, "start", days["hourly"]),
        "daily": _delete(DailyUsage, "start", days["daily"]),
        "deadLetters": _delete(DeadLetter, "at", days["records"]) + _delete_surplus(),
    }
    if any(deleted.values()):
        audit.record(SYSTEM, "delete", KIND, "usage", before={"deleted": deleted}, after={"days": days})
    return deleted


def _delete(model: type[Model], column: str, days: int) -> int:
    """In batches, so that nobody waits long for the rows or the file."""
    before = timezone.now() - timedelta(days=days)
    rows: Any = model._default_manager.filter(**{f"{column}__lt": before}).order_by()
    total = 0
    while keys := list(rows.values_list("pk", flat=True)[:BATCH]):
        total += model._default_manager.filter(pk__in=keys).delete()[0]
    return total


def _delete_surplus() -> int:
    """Dead letters beyond their cap, the oldest ones."""
    newest = DeadLetter.objects.order_by("-pk").values_list("pk", flat=True)
    last = newest[MAX_DEAD_LETTERS - 1 : MAX_DEAD_LETTERS]
    return DeadLetter.objects.filter(pk__lt=last[0]).delete()[0] if last else 0
