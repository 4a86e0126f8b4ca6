"""Usage over HTTP: single requests, and their totals by the hour and by the day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Model
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.core.api import openapi
from controlplane.core.api.pages import MAX_LIMIT, page
from controlplane.core.api.resources import actor_of
from controlplane.core.errors import InvalidError
from controlplane.core.roles import Action, require
from controlplane.usage.models import DailyUsage, DeadLetter, HourlyUsage, LedgerEntry, Totals
from dataplane.config.values import YEARS
from dataplane.errors import ConfigError

USAGE: Final = "Usage"

_TEXT: Final = {"type": "string"}
_MOMENT: Final = {"type": "string", "format": "date-time"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_SECONDS: Final = {"type": "number", "minimum": 0}
_AMOUNT: Final = {"type": "string", "description": "a decimal number"}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


_RECORD: Final = _object(
    id=_TEXT,
    at=_MOMENT,
    pool=_TEXT,
    requestedModel=_TEXT,
    servedModel=_TEXT,
    tenant=_TEXT,
    objective=_TEXT,
    status={**_COUNT, "description": "of the model server; 0 = it never answered"},
    ending=_TEXT,
    promptTokens=_or_null(_COUNT),
    completionTokens=_or_null(_COUNT),
    cachedTokens=_or_null(_COUNT),
    streamed={"type": "boolean"},
    durationSeconds=_SECONDS,
    ttftSeconds=_or_null(_SECONDS),
    revision=_TEXT,
    cost=_or_null(_AMOUNT),
    currency=_TEXT,
)
_TOTALS: Final = _object(
    start=_MOMENT,
    tenant=_TEXT,
    model=_TEXT,
    pool=_TEXT,
    currency={**_TEXT, "description": "of the cost; empty for requests without a price"},
    requests=_COUNT,
    errors=_COUNT,
    promptTokens=_COUNT,
    completionTokens=_COUNT,
    cachedTokens=_COUNT,
    durationSeconds=_SECONDS,
    cost=_AMOUNT,
)
_DEAD: Final = _object(id=_TEXT, at=_MOMENT, reason=_TEXT, payload=_TEXT)

MAX_OFFSET: Final = timedelta(hours=14)
_KEY_FILTERS: Final = {"tenant": "tenant", "pool": "pool", "currency": "currency"}
_RECORD_FILTERS: Final = {
    **_KEY_FILTERS,
    "model": "served_model",
    "requestedModel": "requested_model",
    "status": "status",
    "since": "at__gte",
    "until": "at__lt",
}
_TOTALS_FILTERS: Final = {**_KEY_FILTERS, "model": "model", "since": "start__gte", "until": "start__lt"}
_TOTALS_ORDERS: Final = {"start": "start", "requests": "requests", "cost": "cost"}
_ORDERS: Final = {"at": "at"}


def _parameters(orders: dict[str, str], filters: dict[str, str]) -> list[OpenApiParameter]:
    types: dict[str, Any] = {"since": _MOMENT, "until": _MOMENT, "status": {**_COUNT, "maximum": 999}}
    listed = [f"{sign}{name}" for name in orders for sign in ("", "-")]
    return [
        OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
        OpenApiParameter("offset", {"type": "integer", "minimum": 0, "maximum": 1_000_000}),
        OpenApiParameter("order", {"type": "string", "enum": listed}),
        *(OpenApiParameter(name, types.get(name, str)) for name in filters),
    ]


def _list(
    request: Request,
    model: type[Model],
    describe: Callable[[Any], dict[str, Any]],
    orders: dict[str, str],
    filters: dict[str, str],
) -> Response:
    require(actor_of(request), Action.READ, USAGE)
    problems = [
        ConfigError("must be a moment with its time zone, such as 2026-01-31T12:00:00Z", path=name)
        for name in ("since", "until")
        if name in filters and name in request.query_params and not _is_moment(request.query_params[name])
    ]
    status = request.query_params.get("status", "0") if "status" in filters else "0"
    if not (status.isascii() and status.isdigit() and len(status) <= 3):
        problems.append(ConfigError("must be a number from 0 to 999", path="status"))
    if problems:
        raise InvalidError.of(problems)
    rows = model._default_manager.all()
    return Response(page(request, rows, describe, orders=orders, filters=filters))


def _is_moment(text: str) -> bool:
    """Whether every database takes it: PostgreSQL knows no offset beyond those there are."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return False
    offset = moment.utcoffset()
    return offset is not None and abs(offset) <= MAX_OFFSET and moment.year in YEARS


class RecordsView(APIView):
    """The ledger."""

    @extend_schema(
        operation_id="usage_records",
        tags=["usage"],
        parameters=_parameters(_ORDERS, _RECORD_FILTERS),
        responses=openapi.answers({200: openapi.page(_RECORD)}, 422),
    )
    def get(self, request: Request) -> Response:
        """Finished requests, newest first."""
        return _list(request, LedgerEntry, _record, _ORDERS, _RECORD_FILTERS)


class HourlyView(APIView):
    """Totals of hours."""

    @extend_schema(
        operation_id="usage_hourly",
        tags=["usage"],
        parameters=_parameters(_TOTALS_ORDERS, _TOTALS_FILTERS),
        responses=openapi.answers({200: openapi.page(_TOTALS)}, 422),
    )
    def get(self, request: Request) -> Response:
        """By tenant, model and pool, newest first; hours of UTC."""
        return _list(request, HourlyUsage, _totals, _TOTALS_ORDERS, _TOTALS_FILTERS)


class DailyView(APIView):
    """Totals of days."""

    @extend_schema(
        operation_id="usage_daily",
        tags=["usage"],
        parameters=_parameters(_TOTALS_ORDERS, _TOTALS_FILTERS),
        responses=openapi.answers({200: openapi.page(_TOTALS)}, 422),
    )
    def get(self, request: Request) -> Response:
        """By tenant, model and pool, newest first; days of UTC."""
        return _list(request, DailyUsage, _totals, _TOTALS_ORDERS, _TOTALS_FILTERS)


class DeadLettersView(APIView):
    """What workers sent and nobody understood."""

    @extend_schema(
        operation_id="usage_dead_letters",
        tags=["usage"],
        parameters=_parameters(_ORDERS, {}),
        responses=openapi.answers({200: openapi.page(_DEAD)}, 422),
    )
    def get(self, request: Request) -> Response:
        """Entries of the usage stream that are no records, newest first."""
        return _list(request, DeadLetter, _dead, _ORDERS, {})


def _record(row: LedgerEntry) -> dict[str, Any]:
    return {
        "id": row.pk,
        "at": row.at.isoformat(),
        "pool": row.pool,
        "requestedModel": row.requested_model,
        "servedModel": row.served_model,
        "tenant": row.tenant,
        "objective": row.objective,
        "status": row.status,
        "ending": row.ending,
        "promptTokens": row.prompt_tokens,
        "completionTokens": row.completion_tokens,
        "cachedTokens": row.cached_tokens,
        "streamed": row.streamed,
        "durationSeconds": row.duration_s,
        "ttftSeconds": row.ttft_s,
        "revision": row.revision,
        "cost": None if row.cost is None else f"{row.cost.normalize():f}",
        "currency": row.currency,
    }


def _totals(row: Totals) -> dict[str, Any]:
    return {
        "start": row.start.isoformat(),
        "tenant": row.tenant,
        "model": row.model,
        "pool": row.pool,
        "currency": row.currency,
        "requests": row.requests,
        "errors": row.errors,
        "promptTokens": row.prompt_tokens,
        "completionTokens": row.completion_tokens,
        "cachedTokens": row.cached_tokens,
        "durationSeconds": row.duration_s,
        "cost": f"{row.cost.normalize():f}",
    }


def _dead(row: DeadLetter) -> dict[str, Any]:
    return {"id": row.entry, "at": row.at.isoformat(), "reason": row.reason, "payload": row.payload}


urlpatterns: Final[list[URLPattern]] = [
    path("usage/records", RecordsView.as_view(), name="usage-records"),
    path("usage/hourly", HourlyView.as_view(), name="usage-hourly"),
    path("usage/daily", DailyView.as_view(), name="usage-daily"),
    path("usage/dead-letters", DeadLettersView.as_view(), name="usage-dead-letters"),
]
