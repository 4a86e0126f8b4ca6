"""Telemetry over HTTP: what is known of pools now, and of one pool in the last fifteen minutes."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane import valkey
from controlplane.core.api import openapi
from controlplane.core.api.resources import actor_of
from controlplane.core.errors import InvalidError, MissingError
from controlplane.core.roles import Action, require
from controlplane.telemetry import feed
from controlplane.telemetry.rings import WINDOW_S, Point, Rings
from dataplane.errors import ConfigError
from dataplane.telemetry.summary import Summary

TELEMETRY: Final = "Telemetry"


def _shapes() -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a point and of a worker, as their structs say."""
    (point, summary), parts = msgspec.json.schema_components([Point, Summary], ref_template="#{name}")

    def inlined(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return inlined(parts[value["$ref"].removeprefix("#")])
            return {key: inlined(each) for key, each in value.items() if key != "default"}
        return [inlined(each) for each in value] if isinstance(value, list) else value

    worker = inlined(summary)
    worker["properties"]["stale"] = {"type": "boolean"}
    return inlined(point), worker


_POINT, _WORKER = _shapes()
_LATEST: Final = {
    "point": {"anyOf": [_POINT, {"type": "null"}]},
    "workers": {"type": "array", "items": _WORKER},
}
_POOL: Final = {
    "type": "object",
    "required": ["pool", "point", "workers"],
    "properties": {"pool": {"type": "string"}, **_LATEST},
}
_RING: Final = {
    "type": "object",
    "required": ["pool", "point", "workers", "points"],
    "properties": {**_POOL["properties"], "points": {"type": "array", "items": _POINT}},  # type: ignore[dict-item]
}


class PoolsView(APIView):
    """All pools of which something is known."""

    @extend_schema(
        operation_id="telemetry_pools",
        tags=["telemetry"],
        responses=openapi.answers(
            {
                200: {
                    "type": "object",
                    "required": ["configured", "items"],
                    "properties": {
                        "configured": {"type": "boolean", "description": "whether a Valkey is named"},
                        "items": {"type": "array", "items": _POOL},
                    },
                }
            }
        ),
    )
    def get(self, request: Request) -> Response:
        """By name, each with its last second."""
        require(actor_of(request), Action.READ, TELEMETRY)
        rings = known()
        names = [] if rings is None else rings.pools()
        items = [
            {"pool": name, **latest} for name in names if rings and (latest := rings.latest(name)) is not None
        ]
        return Response({"configured": rings is not None, "items": items})


class PoolView(APIView):
    """One pool."""

    @extend_schema(
        operation_id="telemetry_pool",
        tags=["telemetry"],
        parameters=[OpenApiParameter("seconds", {"type": "integer", "minimum": 1, "maximum": WINDOW_S})],
        responses=openapi.answers({200: _RING}, 404, 422),
    )
    def get(self, request: Request, name: str) -> Response:
        """Its last seconds in order of time, fifteen minutes of them unless fewer are asked for."""
        require(actor_of(request), Action.READ, TELEMETRY)
        text = request.query_params.get("seconds", str(WINDOW_S))
        if not (text.isascii() and text.isdigit() and len(text) < 5 and 0 < int(text) <= WINDOW_S):
            raise InvalidError.of([ConfigError(f"must be a number from 1 to {WINDOW_S}", path="seconds")])
        rings = known()
        latest = None if rings is None else rings.latest(name)
        if rings is None or latest is None:
            raise MissingError(f"no worker of the pool {name} has said anything lately")
        return Response({"pool": name, **latest, "points": rings.points(name, int(text))})


def known() -> Rings | None:
    """What is known; None when no Valkey is configured."""
    return feed.rings() if valkey.is_configured() else None


urlpatterns: Final[list[URLPattern]] = [
    path("telemetry/pools", PoolsView.as_view(), name="telemetry-pools"),
    path("telemetry/pools/<str:name>", PoolView.as_view(), name="telemetry-pool"),
]
