"""Addresses of the fleet beside those that every kind has."""

from __future__ import annotations

from typing import Final

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.core.api import openapi
from controlplane.core.api.pages import MAX_LIMIT, page
from controlplane.core.api.resources import actor_of
from controlplane.fleet import endpoints
from controlplane.fleet.models import Health
from controlplane.fleet.status import status_of

_NULLABLE_TEXT: Final = {"type": ["string", "null"]}
_STATUS: Final = {
    "type": "object",
    "required": ["pool", "driver", "reportedAt", "runner", "stale", "report"],
    "properties": {
        "pool": {"type": "string"},
        "driver": _NULLABLE_TEXT,
        "reportedAt": _NULLABLE_TEXT,
        "runner": _NULLABLE_TEXT,
        "stale": {"type": "boolean", "description": "the report is old, or there is none"},
        "report": {"type": ["object", "null"], "description": "processes, ports, endpoints, problems"},
    },
}


class PoolStatusView(APIView):
    """What runs for a pool, and how it fares."""

    @extend_schema(
        operation_id="pools_status",
        tags=["pools"],
        responses=openapi.answers({200: _STATUS}, 404),
    )
    def get(self, request: Request, name: str) -> Response:
        """The driver's last report."""
        return Response(status_of(actor_of(request), name))


_ENDPOINT: Final = {
    "type": "object",
    "required": ["name", "address", "port", "health", "load", "changedAt"],
    "properties": {
        "name": {"type": "string"},
        "address": {"type": "string"},
        "port": {"type": "integer"},
        "health": {"type": "string", "enum": list(Health.values)},
        "load": {"type": "object", "description": "rank, waiting, running, kvUsage, inflight, share"},
        "changedAt": {"type": "string", "format": "date-time"},
    },
}
_ORDERS: Final = {"name": "name", "health": "health", "changed": "changed_at"}
_FILTERS: Final = {"health": "health", "address": "address", "name": "name"}


class PoolEndpointsView(APIView):
    """The endpoints of a pool, with health and load."""

    @extend_schema(
        operation_id="pools_endpoints",
        tags=["pools"],
        parameters=[
            OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
            OpenApiParameter("offset", {"type": "integer", "minimum": 0}),
            OpenApiParameter(
                "order",
                {"type": "string", "enum": [f"{sign}{name}" for name in _ORDERS for sign in ("", "-")]},
            ),
            *(OpenApiParameter(name, str) for name in _FILTERS),
        ],
        responses=openapi.answers({200: openapi.page(_ENDPOINT)}, 404, 422),
    )
    def get(self, request: Request, name: str) -> Response:
        """As its picker saw them last."""
        rows = endpoints.rows(actor_of(request), name)
        return Response(page(request, rows, endpoints.describe, orders=_ORDERS, filters=_FILTERS))


urlpatterns = [
    path("pools/<str:name>/status", PoolStatusView.as_view(), name="pools-status"),
    path("pools/<str:name>/endpoints", PoolEndpointsView.as_view(), name="pools-endpoints"),
]
