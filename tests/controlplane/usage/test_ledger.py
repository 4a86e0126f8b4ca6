"""Records become entries and totals, each one once, with what they cost."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pytest
from django.db import IntegrityError
from django.utils import timezone

from controlplane.core.documents import apply
from controlplane.core.models import AuditEntry
from controlplane.usage import ledger, retention
from controlplane.usage.models import DailyUsage, DeadLetter, HourlyUsage, LedgerEntry
from tests.support.controlplane import ADMIN, POOL, PRICE
from tests.support.usage import usage_record

pytestmark = pytest.mark.django_db

AT = datetime(2027, 3, 4, 5, 59, 59, tzinfo=UTC).timestamp()


def totals(model: Any) -> list[tuple[Any, ...]]:
    return [
        (row.start, row.tenant, row.requests, row.errors, row.prompt_tokens, row.completion_tokens)
        for row in model.objects.order_by("start", "tenant")
    ]


def test_records_are_summed_up_by_hour_and_day() -> None:
    records = [
        usage_record(1, at=AT),
        usage_record(2, at=AT + 1, status=503, completion_tokens=None),
        usage_record(3, at=AT + 2, ending="error"),
        usage_record(4, at=AT, tenant="sales", status=0),
    ]
    assert ledger.book(records) == 4
    five, six = (datetime(2027, 3, 4, hour, tzinfo=UTC) for hour in (5, 6))
    assert totals(HourlyUsage) == [
        (five, "research", 1, 0, 10, 5),
        (five, "sales", 1, 1, 10, 5),
        (six, "research", 2, 2, 20, 5),
    ]
    start = datetime(2027, 3, 4, tzinfo=UTC)
    assert totals(DailyUsage) == [(start, "research", 3, 2, 30, 10), (start, "sales", 1, 1, 10, 5)]


def test_a_record_counts_once_however_often_it_comes() -> None:
    first = usage_record(1, at=AT)
    assert ledger.book([first, first]) == 1
    assert ledger.book([first, usage_record(2, at=AT)]) == 1
    assert [row.requests for row in HourlyUsage.objects.all()] == [2]
    assert LedgerEntry.objects.count() == 2


def test_whoever_comes_second_writes_what_is_left() -> None:
    real, calls = ledger._book, []

    def late(records: Any) -> int:
        calls.append(len(records))
        if len(calls) == 1:
            real(records[:1])
            raise IntegrityError("somebody else was faster")
        return real(records)

    with patch.object(ledger, "_book", late):
        assert ledger.book([usage_record(1, at=AT), usage_record(2, at=AT)]) == 1
    assert [row.requests for row in HourlyUsage.objects.all()] == [2]


def test_clients_cannot_make_any_number_of_totals() -> None:
    with patch.object(ledger, "MAX_TOTALS", 2):
        ledger.book([usage_record(n, at=AT, tenant=f"t{n}") for n in range(5)])
    assert [(row.tenant, row.requests) for row in HourlyUsage.objects.order_by("tenant")] == [
        ("(other)", 3),
        ("t0", 1),
        ("t1", 1),
    ]


def price(name: str, start: str, **spec: Any) -> dict[str, Any]:
    return {
        **PRICE,
        "metadata": {"name": name},
        "spec": {
            "pool": "pool",
            "model": "llama",
            "currency": "EUR",
            "perMillionTokens": {"input": "2", "output": "10", "cachedInput": "0.5"},
            "validFrom": start,
            **spec,
        },
    }


def test_a_request_costs_what_held_when_it_was_over() -> None:
    apply(ADMIN, [POOL])
    apply(
        ADMIN,
        [
            price("old", "2026-01-01T00:00:00Z", validUntil="2027-03-04T06:00:00Z"),
            price("new", "2027-03-04T06:00:00Z", perRequest="1"),
        ],
    )
    ledger.book(
        [
            usage_record(1, at=AT, prompt_tokens=1000, cached_tokens=400, completion_tokens=100),
            usage_record(2, at=AT + 1, prompt_tokens=1000, completion_tokens=None),
            usage_record(3, at=AT, served_model="mistral"),
        ]
    )
    costs = {row.pk[-1]: (row.cost, row.currency) for row in LedgerEntry.objects.all()}
    assert costs == {"1": (Decimal("0.0024"), "EUR"), "2": (Decimal("1.002"), "EUR"), "3": (None, "")}
    assert [(row.currency, row.cost) for row in DailyUsage.objects.order_by("currency")] == [
        ("", 0),
        ("EUR", Decimal("1.0044")),
    ]


def test_what_is_old_is_deleted_and_that_is_audited(settings: Any) -> None:
    settings.USAGE_RETENTION_DAYS = {"records": 1, "hourly": 2, "daily": 3}
    now = timezone.now().timestamp()
    ledger.book([usage_record(n, at=now - 86400 * n - 3700) for n in range(6)])
    DeadLetter.objects.create(entry="1-1", reason="r", payload="p")
    assert retention.clean_up()["records"] == 5
    assert (LedgerEntry.objects.count(), DeadLetter.objects.count()) == (1, 1)
    kept = HourlyUsage.objects.count(), DailyUsage.objects.count()
    assert kept[0] == 2
    assert kept[1] in (3, 4)
    (entry,) = AuditEntry.objects.filter(kind="UsageRetention")
    assert entry.after == {"days": settings.USAGE_RETENTION_DAYS}
    assert not any(retention.clean_up().values())
    assert AuditEntry.objects.filter(kind="UsageRetention").count() == 1


def test_dead_letters_have_a_cap() -> None:
    DeadLetter.objects.bulk_create(DeadLetter(entry=str(n), reason="r", payload="") for n in range(5))
    with patch.object(retention, "MAX_DEAD_LETTERS", 2):
        assert retention.clean_up()["deadLetters"] == 3
    assert sorted(DeadLetter.objects.values_list("entry", flat=True)) == ["3", "4"]
