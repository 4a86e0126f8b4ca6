"""Writes records to the ledger, each one once, and their sums to the totals in the same transaction.

A record that is there already is left out, of the totals too. Two workers that write the same record at the
same moment collide: one of them is rolled back whole and writes what is then left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from django.db import IntegrityError, transaction
from django.db.models import F

from controlplane.usage.models import DailyUsage, HourlyUsage, LedgerEntry, Totals
from controlplane.usage.prices import Cost, Prices
from dataplane.usage.record import UsageRecord

TRIES: Final = 5
MAX_TOTALS: Final = 10_000
"""Rows of one span; tenants beyond are summed up as ``OTHER``, because clients may choose their names."""
OTHER: Final = "(other)"
FAILED: Final = 400


class _Key(NamedTuple):
    start: datetime
    tenant: str
    model: str
    pool: str
    currency: str


def book(records: Sequence[UsageRecord]) -> int:
    """Write records; how many of them are new."""
    for _ in range(TRIES - 1):
        try:
            return _book(records)
        except IntegrityError:
            continue  # somebody else was writing one of them
    return _book(records)


@transaction.atomic
def _book(records: Sequence[UsageRecord]) -> int:
    by_id = {record.id: record for record in records}
    for known in LedgerEntry.objects.filter(pk__in=by_id).values_list("pk", flat=True):
        del by_id[known]
    prices = Prices(by_id.values())
    entries = [_entry(record, prices) for record in by_id.values()]
    LedgerEntry.objects.bulk_create(entries)
    _add(HourlyUsage, entries, hour)
    _add(DailyUsage, entries, day)
    return len(entries)


def hour(at: datetime) -> datetime:
    """Its first moment."""
    return at.replace(minute=0, second=0, microsecond=0)


def day(at: datetime) -> datetime:
    """Its first moment."""
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def _entry(record: UsageRecord, prices: Prices) -> LedgerEntry:
    at = datetime.fromtimestamp(record.at, UTC)
    cost: Cost = prices.cost(record, at)
    return LedgerEntry(
        id=record.id,
        at=at,
        pool=record.pool,
        requested_model=record.requested_model,
        served_model=record.served_model,
        tenant=record.tenant,
        objective=record.objective,
        status=record.status,
        ending=record.ending,
        prompt_tokens=record.prompt_tokens,
        completion_tokens=record.completion_tokens,
        cached_tokens=record.cached_tokens,
        streamed=record.streamed,
        duration_s=record.duration_s,
        ttft_s=record.ttft_s,
        revision=record.revision,
        cost=cost.amount,
        currency=cost.currency,
    )


def _add(model: type[Totals], entries: Iterable[LedgerEntry], start_of: Any) -> None:
    sums: dict[_Key, dict[str, Any]] = {}
    for entry in entries:
        key = _Key(start_of(entry.at), entry.tenant, entry.served_model, entry.pool, entry.currency)
        row = sums.setdefault(
            key,
            {
                "requests": 0,
                "errors": 0,
                "prompt_tokens": 0,
                "completion_tokens": 0,
                "cached_tokens": 0,
                "duration_s": 0.0,
                "cost": Decimal(0),
            },
        )
        row["requests"] += 1
        row["errors"] += not 0 < entry.status < FAILED or entry.ending == "error"
        row["prompt_tokens"] += entry.prompt_tokens or 0
        row["completion_tokens"] += entry.completion_tokens or 0
        row["cached_tokens"] += entry.cached_tokens or 0
        row["duration_s"] += entry.duration_s
        row["cost"] += entry.cost or 0
    for key in sorted(sums):  # in one order everywhere, so that two workers never wait for one another
        _add_to(model, key, sums[key])


def _add_to(model: type[Totals], key: _Key, row: dict[str, Any]) -> None:
    rows = model._default_manager
    change = {name: F(name) + value for name, value in row.items()}
    if rows.filter(**key._asdict()).update(**change):
        return
    if key.tenant != OTHER and rows.filter(start=key.start).count() >= MAX_TOTALS:
        _add_to(model, key._replace(tenant=OTHER), row)
        return
    rows.create(**key._asdict(), **row)
