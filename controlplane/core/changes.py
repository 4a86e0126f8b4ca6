"""A number that rises with every change, so that who serves the configuration notices each by a small query.

Each change adds a row in its own transaction; the number is how many rows there are, those included that
were folded into a base since. So it rises when a transaction commits and not before, whatever the order in
which they began; who reads N and then looks sees everything that N counts; and no transaction waits for
another one.
"""

from __future__ import annotations

from typing import Final

from django.db import transaction
from django.db.models import F, Func, Subquery
from django.db.models.functions import Now

from controlplane.core.models import Change, ChangeCounter

ONLY: Final = 1
FOLDED_FROM: Final = 1000
"""Rows there may be before they are folded."""


def bump() -> None:
    """Count a change. Called inside its transaction."""
    Change.objects.create()


def current() -> int:
    """The number of changes; 0 when there were none."""
    rows = Change.objects.order_by().annotate(count=Func(F("pk"), function="COUNT")).values("count")
    # One statement: base and rows are those of one moment.
    total = ChangeCounter.objects.filter(pk=ONLY).values_list(F("number") + Subquery(rows), flat=True)
    found = total.first()
    if found is None:
        _make_base()
        found = total.first() or 0
    return found


def age(count: int) -> float | None:
    """Seconds since the oldest of the last ``count`` changes, both by the database's clock; None when it was
    folded.
    """
    rows = Change.objects.order_by("-pk").values_list("at", Now())
    found = rows[count - 1 : count].first() if count > 0 else None
    return None if found is None else max(0.0, (found[1] - found[0]).total_seconds())


def fold() -> None:
    """Replace rows by their number, if there are many."""
    ids = list(Change.objects.order_by("pk").values_list("pk", flat=True)[: FOLDED_FROM + 1])
    if len(ids) <= FOLDED_FROM:
        return
    _make_base()
    with transaction.atomic():
        base = ChangeCounter.objects.select_for_update().get(pk=ONLY)
        folded, _ = Change.objects.filter(pk__lte=ids[-1], pk__gte=ids[0]).delete()
        base.number += folded
        base.save(update_fields=["number"])


def raise_to(number: int) -> None:
    """Go on from ``number`` if this is behind it, as after a database was put back from a backup."""
    _make_base()
    with transaction.atomic():
        base = ChangeCounter.objects.select_for_update().get(pk=ONLY)
        behind = number - current()
        if behind > 0:
            base.number += behind
            base.save(update_fields=["number"])


def _make_base() -> None:
    ChangeCounter.objects.bulk_create([ChangeCounter(pk=ONLY)], ignore_conflicts=True)
