"""What the API offers besides single objects: sets of documents, who am I, tokens, and the audit log."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.core import documents, history
from controlplane.core.api import openapi
from controlplane.core.api.pages import page, query_of
from controlplane.core.api.resources import actor_of
from controlplane.core.errors import InvalidError
from dataplane.errors import ConfigError

_DOCUMENTS: Final = {"type": "array", "items": openapi.ANY_DOCUMENT}
_SET: Final = {
    "anyOf": [
        _DOCUMENTS,
        {
            "type": "object",
            "required": ["documents"],
            "additionalProperties": False,
            "properties": {"documents": _DOCUMENTS},
        },
        openapi.ANY_DOCUMENT,
    ]
}
_PLAN: Final = {
    "type": "object",
    "required": ["applied", "steps", "warnings"],
    "properties": {
        "applied": {"type": "boolean"},
        "warnings": openapi.DETAILS,
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["kind", "name", "action", "changes"],
                "properties": {
                    "kind": {"type": "string"},
                    "name": {"type": "string"},
                    "action": {"type": "string", "enum": ["create", "update", "unchanged"]},
                    "changes": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["path", "before", "after"],
                            "properties": {"path": {"type": "string"}, "before": {}, "after": {}},
                        },
                    },
                },
            },
        },
    },
}
_AUDITED_TEXTS: Final = ("actor", "channel", "action", "kind", "name", "requestId")
_AUDITED: Final = {
    "type": "object",
    "required": ["id", "at", *_AUDITED_TEXTS, "before", "after"],
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        **{name: {"type": "string"} for name in _AUDITED_TEXTS},
        "before": {"type": ["object", "null"]},
        "after": {"type": ["object", "null"]},
    },
}

_AUDIT_FILTERS: Final = {name: name for name in ("actor", "action", "kind", "name", "request_id")}


class ApplyView(APIView):
    """Applies a set of documents, all of it or nothing."""

    @extend_schema(
        operation_id="apply",
        tags=["documents"],
        parameters=[OpenApiParameter("dry_run", {"type": "boolean"}, description="only plan")],
        request=openapi.body(_SET),
        responses=openapi.answers({200: _PLAN}, 412, 422),
    )
    def post(self, request: Request) -> Response:
        """Plan, and unless ``dry_run`` is true, do it."""
        raw: Any = request.data if request.body else []
        if isinstance(raw, dict):
            raw = raw["documents"] if set(raw) == {"documents"} else [raw]
        if not isinstance(raw, list):
            raise InvalidError.of([ConfigError("must be a list of documents", path="documents")])
        text = query_of(request, "dry_run").get("dry_run", "false").lower()
        if text not in {"true", "false"}:
            raise InvalidError.of([ConfigError("must be true or false", path="dry_run")])
        plan = documents.apply(actor_of(request), raw, dry_run=text == "true")
        return Response(msgspec.to_builtins(plan))


class ExportView(APIView):
    """Everything as documents."""

    @extend_schema(
        operation_id="export",
        tags=["documents"],
        parameters=[OpenApiParameter("format", {"type": "string", "enum": ["json", "yaml"]})],
        responses=openapi.answers(
            {
                (200, "application/json"): {
                    "type": "object",
                    "required": ["documents"],
                    "properties": {"documents": _DOCUMENTS},
                },
                (200, "application/yaml"): {**_DOCUMENTS, "description": "one document after another"},
            },
            422,
        ),
    )
    def get(self, request: Request) -> Response | HttpResponse:
        """As JSON, or as YAML that a picker reads as its objects file."""
        kind = query_of(request, "format").get("format", "json")
        if kind not in {"json", "yaml"}:
            raise InvalidError.of([ConfigError("must be json or yaml", path="format")])
        found = documents.export(actor_of(request))
        if kind == "json":
            return Response({"documents": found})
        return HttpResponse(yaml.safe_dump_all(found, sort_keys=False), content_type="application/yaml")


class WhoAmIView(APIView):
    """The caller."""

    @extend_schema(
        operation_id="whoami",
        tags=["access"],
        responses=openapi.answers(
            {
                200: {
                    "type": "object",
                    "required": ["name", "role", "channel"],
                    "properties": {name: {"type": "string"} for name in ("name", "role", "channel")},
                }
            }
        ),
    )
    def get(self, request: Request) -> Response:
        """Name, role and channel."""
        actor = actor_of(request)
        return Response({"name": actor.name, "role": actor.role, "channel": actor.channel})


class AuditView(APIView):
    """The audit log."""

    @extend_schema(
        operation_id="audit_list",
        tags=["access"],
        parameters=[
            OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": 500}),
            OpenApiParameter("offset", {"type": "integer", "minimum": 0}),
            OpenApiParameter("order", {"type": "string", "enum": ["id", "-id"]}),
            *(OpenApiParameter(name, str) for name in _AUDIT_FILTERS),
        ],
        responses=openapi.answers({200: openapi.page(_AUDITED)}, 422),
    )
    def get(self, request: Request) -> Response:
        """Newest first."""
        rows = history.rows(actor_of(request))
        return Response(page(request, rows, history.describe, orders={"id": "id"}, filters=_AUDIT_FILTERS))
