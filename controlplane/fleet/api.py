"""Addresses of the fleet beside those that every kind has."""

from __future__ import annotations

from typing import Final

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.core.api import openapi
from controlplane.core.api.resources import actor_of
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


urlpatterns = [path("pools/<str:name>/status", PoolStatusView.as_view(), name="pools-status")]
