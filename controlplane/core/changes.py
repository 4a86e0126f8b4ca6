"""A number that rises with every change, so that who serves the configuration notices each by a small query.

It is written in the transaction of the change, and the row stays locked until that ends: transactions that
change something commit in the order of their numbers. Who reads N sees all changes up to N, and no number is
ever seen before the change it stands for.
"""

from __future__ import annotations

from typing import Final

from django.db.models import F

from controlplane.core.models import ChangeCounter

ONLY: Final = 1


def bump() -> None:
    """Count a change. Called inside its transaction."""
    rows = ChangeCounter.objects.filter(pk=ONLY)
    if not rows.update(number=F("number") + 1):
        ChangeCounter.objects.bulk_create([ChangeCounter(pk=ONLY)], ignore_conflicts=True)
        rows.update(number=F("number") + 1)


def current() -> int:
    """The number of the last change; 0 when there was none."""
    return ChangeCounter.objects.filter(pk=ONLY).values_list("number", flat=True).first() or 0


def raise_to(number: int) -> None:
    """Go on from ``number`` if the counter is behind it, as after a database was put back from a backup."""
    ChangeCounter.objects.bulk_create([ChangeCounter(pk=ONLY)], ignore_conflicts=True)
    ChangeCounter.objects.filter(pk=ONLY, number__lt=number).update(number=number)
