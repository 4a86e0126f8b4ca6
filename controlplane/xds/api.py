"""Workers over HTTP: who is there, and what each made of its configuration."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.configs.api.shapes import body as shape_of
from controlplane.core.api import openapi
from controlplane.core.api.pages import MAX_LIMIT, page
from controlplane.core.api.resources import actor_of
from controlplane.telemetry.api import known_processors
from controlplane.telemetry.processors import Health
from controlplane.xds import workers
from controlplane.xds.nodes import SUBSCRIBERS

_TEXT: Final = {"type": "string"}
_MOMENT: Final = {"type": "string", "format": "date-time"}
_PROBLEM: Final = {
    "type": "object",
    "required": ["path", "message"],
    "properties": {"path": _TEXT, "message": _TEXT},
}
_ANSWER: Final = {
    "type": "object",
    "required": ["type", "outcome", "version", "inUse", "message", "problems", "at"],
    "properties": {
        "type": _TEXT,
        "outcome": {"type": "string", "enum": ["ack", "nack"]},
        "version": {"type": "string", "description": "of the set that was sent"},
        "inUse": {"type": "string", "description": "version in use after it; empty = none"},
        "message": _TEXT,
        "problems": {"type": "array", "items": _PROBLEM},
        "at": _MOMENT,
    },
}
_APPLIED: Final = {
    "type": ["object", "null"],
    "required": ["document", "revision", "digest"],
    "properties": {"document": _TEXT, "revision": {"type": "integer"}, "digest": _TEXT},
    "description": "revision of a configuration that runs; null = that of the worker's own flags",
}
_WORKER: Final[dict[str, Any]] = {
    "type": "object",
    "required": [
        *("id", "kind", "pool", "component", "version", "user", "metadata"),
        *("connected", "connectedAt", "seenAt", "applied", "policies", "types", "health"),
    ],
    "properties": {
        "id": _TEXT,
        "kind": {"type": "string", "enum": list(SUBSCRIBERS)},
        "pool": {"type": "string", "description": "or the gateway, or the payload processor"},
        "component": {"type": "string", "description": "as the worker says, such as epp"},
        "version": {"type": "string", "description": "of the software, as the worker says"},
        "user": _TEXT,
        "metadata": {"type": "object"},
        "connected": {"type": "boolean"},
        "connectedAt": _MOMENT,
        "seenAt": _MOMENT,
        "applied": _APPLIED,
        "policies": {
            "type": ["integer", "null"],
            "description": "guardrail policies in force; null = no payload processor",
        },
        "types": {"type": "array", "items": _ANSWER, "description": "the last answer for each type"},
        "health": {
            **shape_of(Health),
            "type": ["object", "null"],
            "description": "of a payload processor, as it says itself; null = it has not been heard lately",
        },
    },
}
_RUNNING: Final = {
    "type": "object",
    "required": ["document", "revision", "digest"],
    "properties": {"document": _TEXT, "revision": {"type": "integer"}, "digest": _TEXT},
}
_FULLY: Final = {
    **_WORKER,
    "required": [*_WORKER["required"], "running", "answers"],
    "properties": {
        **_WORKER["properties"],
        "running": {"type": "array", "items": _RUNNING, "description": "guardrail policies in force"},
        "answers": {"type": "array", "items": _ANSWER},
    },
}
_FILTERS: Final = {"kind": "kind", "pool": "pool", "id": "node_id", "user": "user"}
_ORDERS: Final = {"id": "node_id", "pool": "pool", "seen": "seen_at"}


class WorkersView(APIView):
    """All workers."""

    @extend_schema(
        operation_id="workers_list",
        tags=["workers"],
        parameters=[
            OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
            OpenApiParameter("offset", {"type": "integer", "minimum": 0}),
            OpenApiParameter(
                "order",
                {"type": "string", "enum": [f"{sign}{name}" for name in _ORDERS for sign in ("", "-")]},
            ),
            *(OpenApiParameter(name, str) for name in _FILTERS),
        ],
        responses=openapi.answers({200: openapi.page(_WORKER)}, 422),
    )
    def get(self, request: Request) -> Response:
        """By name, unless another order is asked for."""
        rows, health = workers.rows(actor_of(request)), _health()

        def shown(row: Any) -> dict[str, Any]:
            return {**workers.describe(row), "health": health.get((row.pool, row.node_id))}

        return Response(page(request, rows, shown, orders=_ORDERS, filters=_FILTERS))


class WorkerView(APIView):
    """One worker."""

    @extend_schema(
        operation_id="workers_get", tags=["workers"], responses=openapi.answers({200: _FULLY}, 404)
    )
    def get(self, request: Request, name: str) -> Response:
        """With its last answers, newest first."""
        row = workers.find(actor_of(request), name)
        health = _health().get((row.pool, row.node_id))
        return Response({**workers.describe_fully(row), "health": health})


def _health() -> dict[tuple[str, str], Any]:
    """How payload processors fare, by name and node id; nothing where no Valkey is named."""
    known = known_processors()
    if known is None:
        return {}
    return {key: msgspec.to_builtins(each) for key, each in known.health().items()}


urlpatterns: Final[list[URLPattern]] = [
    path("workers", WorkersView.as_view(), name="workers-list"),
    path("workers/<str:name>", WorkerView.as_view(), name="workers-one"),
]
