"""Telemetry over HTTP: what is known of pools and of payload processors, now and in the last minutes."""

from __future__ import annotations

from typing import Any, Final, Protocol

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
from controlplane.telemetry.processors import ProcessorPoint, Processors
from controlplane.telemetry.rings import WINDOW_S, Point, Rings
from dataplane.errors import ConfigError
from dataplane.telemetry.summary import ProcessorSummary, Summary

TELEMETRY: Final = "Telemetry"

Schema = dict[str, Any]


def _shapes(
    point_type: type[msgspec.Struct], worker_type: type[msgspec.Struct]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a point and of a worker, as their structs say."""
    (point, summary), parts = msgspec.json.schema_components(
        [point_type, worker_type], ref_template="#{name}"
    )

    def inlined(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return inlined(parts[value["$ref"].removeprefix("#")])
            return {key: inlined(each) for key, each in value.items() if key != "default"}
        return [inlined(each) for each in value] if isinstance(value, list) else value

    worker = inlined(summary)
    worker["properties"]["stale"] = {"type": "boolean"}
    return inlined(point), worker


def _schemas(group: str, kinds: tuple[dict[str, Any], dict[str, Any]]) -> tuple[Schema, Schema]:
    """Of all groups with their last second, and of one group's last minutes."""
    point, worker = kinds
    properties: Schema = {
        group: {"type": "string"},
        "point": {"anyOf": [point, {"type": "null"}]},
        "workers": {"type": "array", "items": worker},
    }
    one: Schema = {"type": "object", "required": [*properties], "properties": properties}
    ring: Schema = {
        "type": "object",
        "required": [*properties, "points"],
        "properties": {**properties, "points": {"type": "array", "items": point}},
    }
    every: Schema = {
        "type": "object",
        "required": ["configured", "items"],
        "properties": {
            "configured": {"type": "boolean", "description": "whether a Valkey is named"},
            "items": {"type": "array", "items": one},
        },
    }
    return every, ring


_POOLS, _POOL = _schemas("pool", _shapes(Point, Summary))
_PROCESSORS, _PROCESSOR = _schemas("processor", _shapes(ProcessorPoint, ProcessorSummary))
_SECONDS: Final = OpenApiParameter("seconds", {"type": "integer", "minimum": 1, "maximum": WINDOW_S})


class _Known(Protocol):
    """What pools and processors have in common."""

    def groups(self) -> list[str]:
        """Names of those of which something is known."""

    def latest(self, name: str, /) -> dict[str, Any] | None:
        """The last second."""

    def points(self, name: str, seconds: int, /) -> list[dict[str, Any]]:
        """The last seconds."""


def _all(request: Request, group: str, found: _Known | None) -> Response:
    require(actor_of(request), Action.READ, TELEMETRY)
    items = [
        {group: name, **latest}
        for name in (found.groups() if found is not None else ())
        if found is not None and (latest := found.latest(name)) is not None
    ]
    return Response({"configured": found is not None, "items": items})


def _one(request: Request, group: str, name: str, found: _Known | None) -> Response:
    require(actor_of(request), Action.READ, TELEMETRY)
    text = request.query_params.get("seconds", str(WINDOW_S))
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 0 < int(text) <= WINDOW_S):
        raise InvalidError.of([ConfigError(f"must be a number from 1 to {WINDOW_S}", path="seconds")])
    latest = None if found is None else found.latest(name)
    if found is None or latest is None:
        raise MissingError(f"no worker of the {group} {name} has said anything lately")
    return Response({group: name, **latest, "points": found.points(name, int(text))})


class PoolsView(APIView):
    """All pools of which something is known."""

    @extend_schema(
        operation_id="telemetry_pools", tags=["telemetry"], responses=openapi.answers({200: _POOLS})
    )
    def get(self, request: Request) -> Response:
        """By name, each with its last second."""
        return _all(request, "pool", known())


class PoolView(APIView):
    """One pool."""

    @extend_schema(
        operation_id="telemetry_pool",
        tags=["telemetry"],
        parameters=[_SECONDS],
        responses=openapi.answers({200: _POOL}, 404, 422),
    )
    def get(self, request: Request, name: str) -> Response:
        """Its last seconds in order of time, fifteen minutes of them unless fewer are asked for."""
        return _one(request, "pool", name, known())


class ProcessorsView(APIView):
    """All payload processors of which something is known."""

    @extend_schema(
        operation_id="telemetry_processors",
        tags=["telemetry"],
        responses=openapi.answers({200: _PROCESSORS}),
    )
    def get(self, request: Request) -> Response:
        """By the name that replicas share, each with its last second."""
        return _all(request, "processor", known_processors())


class ProcessorView(APIView):
    """The replicas of one payload processor."""

    @extend_schema(
        operation_id="telemetry_processor",
        tags=["telemetry"],
        parameters=[_SECONDS],
        responses=openapi.answers({200: _PROCESSOR}, 404, 422),
    )
    def get(self, request: Request, name: str) -> Response:
        """The last seconds in order of time, fifteen minutes of them unless fewer are asked for."""
        return _one(request, "processor", name, known_processors())


def known() -> Rings | None:
    """What is known of pools; None when no Valkey is configured."""
    return feed.rings() if valkey.is_configured() else None


def known_processors() -> Processors | None:
    """What is known of payload processors; None when no Valkey is configured."""
    return feed.processors() if valkey.is_configured() else None


urlpatterns: Final[list[URLPattern]] = [
    path("telemetry/pools", PoolsView.as_view(), name="telemetry-pools"),
    path("telemetry/pools/<str:name>", PoolView.as_view(), name="telemetry-pool"),
    path("telemetry/processors", ProcessorsView.as_view(), name="telemetry-processors"),
    path("telemetry/processors/<str:name>", ProcessorView.as_view(), name="telemetry-processor"),
]
