"""Long lists in pages, and the questions a list can be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from django.db.models import Model, QuerySet
from rest_framework.request import Request

from controlplane.core.errors import InvalidError
from dataplane.errors import ConfigError

M = TypeVar("M", bound=Model)

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500
MAX_OFFSET: Final = 1_000_000


def page(
    request: Request,
    rows: QuerySet[M],
    describe: Callable[[M], Any],
    *,
    orders: Mapping[str, str],
    filters: Mapping[str, str],
) -> dict[str, Any]:
    """One page. ``orders`` and ``filters`` name what may be asked for, and the column it stands for.

    ``InvalidError`` for a parameter that is not known or has no sensible value.
    """
    problems: list[ConfigError] = []
    query = _query(request, {"limit", "offset", "order", *filters}, problems)
    limit = _number(query, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT, problems)
    offset = _number(query, "offset", 0, 0, MAX_OFFSET, problems)
    order = query.get("order", "")
    column = orders.get(order.removeprefix("-"))
    if "order" in query and column is None:
        listed = ", ".join(orders)
        problems.append(ConfigError(f"must be one of {listed}, or one of them with - in front", path="order"))
    if problems:
        raise InvalidError.of(problems)
    for name, lookup in filters.items():
        if name in query:
            value = query[name]
            rows = rows.none() if "\x00" in value else rows.filter(**{lookup: value})
    rows = _ordered(rows, column, descending=order.startswith("-"))
    found = list(rows[offset : offset + limit])
    total = offset + len(found) if found and len(found) < limit else rows.count()
    return {"items": [describe(row) for row in found], "total": total, "limit": limit, "offset": offset}


def _ordered(rows: QuerySet[M], column: str | None, *, descending: bool) -> QuerySet[M]:
    """Rows of one value have an order too, or a page would repeat rows of another and leave some out."""
    sign = "-" if descending else ""
    usual = rows.query.order_by or rows.model._meta.ordering or ()
    columns = (f"{sign}{column}",) if column is not None else tuple(usual)
    return rows.order_by(*columns, f"{sign}pk")


def query_of(request: Request, *known: str) -> dict[str, str]:
    """The parameters of a request. ``InvalidError`` for one that is not known, or is there twice."""
    problems: list[ConfigError] = []
    found = _query(request, set(known), problems)
    if problems:
        raise InvalidError.of(problems)
    return found


def _query(request: Request, known: set[str], problems: list[ConfigError]) -> dict[str, str]:
    listed = f"use {', '.join(sorted(known))}" if known else "there are none"
    found: dict[str, str] = {}
    for name, values in request.query_params.lists():
        if name not in known:
            problems.append(ConfigError(f"is no parameter here; {listed}", path=name))
        elif len(values) > 1:
            problems.append(ConfigError("is given more than once", path=name))
        else:
            found[name] = str(values[0]) if values else ""
    return found


def _number(
    query: Mapping[str, str], name: str, default: int, least: int, most: int, problems: list[ConfigError]
) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        problems.append(ConfigError(f"must be a number from {least} to {most}", path=name))
        return default
    return int(text)
