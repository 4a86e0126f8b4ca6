"""What drivers report of pools, written by the driver and read by everybody who may read pools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from controlplane.core import changes
from controlplane.core.roles import Actor
from controlplane.fleet.models import PoolStatus
from controlplane.fleet.services import PoolService

STALE_AFTER: Final = timedelta(seconds=10)
"""A report of this age says what was, not what is."""
FORGOTTEN_AFTER: Final = timedelta(days=1)
"""Nobody reports the pool any more."""


def report(runner: str, reports: Mapping[str, Mapping[str, Any]]) -> None:
    """Write one round of reports, pool -> report; what this runner has said of other pools is forgotten.

    Where a picker listens is configuration for gateways, so another port counts as a change.
    """
    now = timezone.now()
    rows = [
        PoolStatus(pool=pool, reported_at=now, runner=runner, report=dict(said))
        for pool, said in reports.items()
    ]
    with transaction.atomic():
        known = ports_of(reports)
        if any(said.get("ports") != known.get(pool) for pool, said in reports.items()):
            changes.bump()
        PoolStatus.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["pool"],
            update_fields=["reported_at", "runner", "report"],
        )
        _forget(runner, reports)
        PoolStatus.objects.filter(reported_at__lt=now - FORGOTTEN_AFTER).delete()


def ports_of(pools: Iterable[str]) -> dict[str, Mapping[str, int]]:
    """Pool -> the ports of its picker, as they were last reported; of pools that have a picker."""
    rows = PoolStatus.objects.filter(pool__in=list(pools)).values_list("pool", "report__ports")
    return {pool: ports for pool, ports in rows if ports is not None}


def _forget(runner: str, kept: Collection[str]) -> None:
    said = set(PoolStatus.objects.filter(runner=runner).values_list("pool", flat=True))
    if gone := said - set(kept):
        PoolStatus.objects.filter(runner=runner, pool__in=gone).delete()


def status_of(actor: Actor, name: str) -> dict[str, Any]:
    """What is known of a pool. ``MissingError`` when there is none of this name."""
    pool = PoolService().get(actor, name)
    row = PoolStatus.objects.filter(pool=pool.name).first()
    shown: dict[str, Any] = {"pool": pool.name, "driver": pool.driver or None}
    if row is None:
        return shown | {"reportedAt": None, "runner": None, "stale": True, "report": None}
    return shown | {
        "reportedAt": row.reported_at.isoformat(),
        "runner": row.runner,
        "stale": timezone.now() - row.reported_at > STALE_AFTER,
        "report": row.report,
    }
