"""What a request costs: the price of its model in its pool at the moment it was over."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from django.db.models import Q

from controlplane.providers.models import ModelPrice
from dataplane.usage.record import UsageRecord

MILLION: Final = 1_000_000
SMALLEST: Final = Decimal("0.000000000001")
MAX_COST: Final = Decimal(10) ** 9


class Cost(NamedTuple):
    """An amount of money."""

    amount: Decimal | None
    currency: str = ""


FREE: Final = Cost(None)
"""Nobody has said a price."""


class Prices:
    """The prices a batch of records needs, read once."""

    def __init__(self, records: Iterable[UsageRecord]) -> None:
        wanted = {(record.pool, record.served_model) for record in records}
        pools, models = {pool for pool, _ in wanted}, {model for _, model in wanted}
        self._found: dict[tuple[str, str], list[ModelPrice]] = {}
        rows = ModelPrice.objects.filter(~Q(pool=""), pool__in=pools, model__in=models)
        for row in rows.order_by("-valid_from"):
            self._found.setdefault((row.pool, row.model), []).append(row)

    def cost(self, record: UsageRecord, at: datetime) -> Cost:
        """By the newest price that held then. Tokens nobody reported cost nothing."""
        for row in self._found.get((record.pool, record.served_model), ()):
            if row.valid_from <= at and (row.valid_until is None or at < row.valid_until):
                return _cost(record, row.spec)
        return FREE


def _cost(record: UsageRecord, spec: dict[str, Any]) -> Cost:
    prices = spec["perMillionTokens"]
    plain = Decimal(prices["input"])
    prompt, cached = record.prompt_tokens or 0, record.cached_tokens or 0
    cached = min(cached, prompt)
    tokens = (
        plain * (prompt - cached)
        + Decimal(prices.get("cachedInput", plain)) * cached
        + Decimal(prices["output"]) * (record.completion_tokens or 0)
    )
    amount = tokens / MILLION + Decimal(spec.get("perRequest", 0))
    return Cost(min(amount, MAX_COST).quantize(SMALLEST), spec["currency"])
