"""The endpoints that pools have, as their pickers see them: written by drivers, read by everybody.

A round of reports writes only rows of which something is another. Which addresses a pool has is configuration
for gateways, so a change of these counts as one (``changes``); load and health do not. Everything here blocks
on the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from controlplane.core import changes
from controlplane.core.roles import Actor
from controlplane.fleet.models import Health, InferencePool, PoolEndpoint
from controlplane.fleet.services import PoolService

BATCH: Final = 500
LOAD: Final = ("rank", "waiting", "running", "kvUsage", "inflight", "share")
"""What of a picker's row is its load."""

Key = tuple[str, int]
"""(address, port)."""


class Seen(msgspec.Struct, frozen=True):
    """An endpoint as a picker shows it."""

    name: str
    address: str
    port: int
    health: str
    load: dict[str, Any]

    @property
    def key(self) -> Key:
        """What tells the endpoints of a pool apart."""
        return self.address, self.port


def seen_in(row: Mapping[str, Any]) -> Seen:
    """An endpoint from a row of a picker's page. ``ValueError`` or ``LookupError`` when it is none."""
    host, _, port = str(row["address"]).rpartition(":")
    load = {name: row[name] for name in LOAD if row.get(name) is not None}
    return Seen(str(row["name"]), host.strip("[]"), int(port), _health(row), load)


def _health(row: Mapping[str, Any]) -> str:
    ejection = row.get("ejection") or {}
    if ejection.get("state", "healthy") == "ejected":
        return Health.EJECTED
    if not row.get("listens", True):
        return Health.UNREACHABLE
    return Health.HEALTHY if row.get("fresh") else Health.STALE


class _Row(NamedTuple):
    """What is in the database."""

    id: int
    seen: Seen


class EndpointReports:
    """One driver's way of writing: it remembers what it has written, as long as that has worked."""

    def __init__(self) -> None:
        self._written: dict[str, dict[Key, _Row]] = {}
        self._pools: frozenset[str] = frozenset()

    def write(self, found: Mapping[str, Sequence[Seen]], pools: Iterable[str]) -> None:
        """Write a round; ``found`` has the pools whose pickers told, ``pools`` all there are."""
        now, there = timezone.now(), frozenset(pools)
        if there != self._pools:
            PoolEndpoint.objects.exclude(pool__in=InferencePool.objects.values("name")).delete()
            self._written = {pool: rows for pool, rows in self._written.items() if pool in there}
            self._pools = there
        for pool, endpoints in found.items():
            if pool in there:
                self._write_pool(pool, {each.key: each for each in endpoints}, now)

    def _write_pool(self, pool: str, wanted: Mapping[Key, Seen], now: datetime) -> None:
        before = self._written.pop(pool, None)
        if before is None:
            before = _read(pool)
        changed = [each for key, each in wanted.items() if key not in before or before[key].seen != each]
        gone = [row.id for key, row in before.items() if key not in wanted]
        if changed or gone:
            with transaction.atomic():
                _delete(gone)
                _put(pool, changed, now)
                if wanted.keys() != before.keys():
                    changes.bump()
            before = _read(pool)
        self._written[pool] = before


def _read(pool: str) -> dict[Key, _Row]:
    rows = PoolEndpoint.objects.filter(pool=pool)
    return {
        (row.address, row.port): _Row(row.pk, Seen(row.name, row.address, row.port, row.health, row.load))
        for row in rows
    }


def _put(pool: str, endpoints: Sequence[Seen], now: datetime) -> None:
    PoolEndpoint.objects.bulk_create(
        [
            PoolEndpoint(
                pool=pool,
                name=each.name,
                address=each.address,
                port=each.port,
                health=each.health,
                load=each.load,
                changed_at=now,
            )
            for each in endpoints
        ],
        batch_size=BATCH,
        update_conflicts=True,
        unique_fields=["pool", "address", "port"],
        update_fields=["name", "health", "load", "changed_at"],
    )


def _delete(ids: Sequence[int]) -> None:
    for start in range(0, len(ids), BATCH):
        PoolEndpoint.objects.filter(pk__in=ids[start : start + BATCH]).delete()


def addresses(pools: Iterable[str]) -> dict[str, set[Key]]:
    """Pool -> the addresses its picker has; of pools with some."""
    found: dict[str, set[Key]] = {}
    names = sorted(pools)
    for start in range(0, len(names), BATCH):
        batch = Q(pool__in=names[start : start + BATCH])
        rows = PoolEndpoint.objects.filter(batch).order_by().values_list("pool", "address", "port")
        for pool, address, port in rows.iterator():
            found.setdefault(pool, set()).add((address, port))
    return found


def rows(actor: Actor, pool: str) -> QuerySet[PoolEndpoint]:
    """The endpoints of a pool. ``MissingError`` when there is none of this name."""
    return PoolEndpoint.objects.filter(pool=PoolService().get(actor, pool).name)


def describe(row: PoolEndpoint) -> dict[str, Any]:
    """As it is shown."""
    return {
        "name": row.name,
        "address": row.address,
        "port": row.port,
        "health": row.health,
        "load": row.load,
        "changedAt": row.changed_at.isoformat(),
    }
