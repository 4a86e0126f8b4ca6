"""Reading and changing objects of any kind over HTTP: two views per kind, made from its service.

A change names the version it is meant for, in ``If-Match`` or in the document's ``resourceVersion``; without
one it is refused, so that nobody overwrites what he has not seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.core.api import openapi
from controlplane.core.api.pages import MAX_LIMIT, page
from controlplane.core.errors import Detail, InvalidError, UnversionedError
from controlplane.core.kinds import Service
from controlplane.core.metadata import version_of
from controlplane.core.references import Looked
from controlplane.core.roles import Actor
from dataplane.config.decode import decode_struct
from dataplane.errors import ConfigError

S = TypeVar("S", bound=msgspec.Struct)

_VERSION: Final = re.compile(openapi.VERSION)
ORDERS: Final = {"name": "name", "created": "created_at", "updated": "updated_at"}


def actor_of(request: Request) -> Actor:
    """Who asks."""
    return cast("Actor", request.auth)


def document_of(request: Request) -> dict[str, Any]:
    """The body as a document. ``InvalidError`` when it is none."""
    if not isinstance(request.data, dict):
        raise InvalidError.of([ConfigError("must be one document: apiVersion, kind, metadata, spec")])
    return request.data


def body_of(request: Request, kind: type[S]) -> S:
    """The body as a struct. ``InvalidError`` with everything that is wrong with it."""
    problems: list[ConfigError] = []
    raw = request.data
    if raw is None:
        raise InvalidError.of([ConfigError("must be a mapping")])
    found = decode_struct(raw, kind, "", problems)
    if found is None or problems:
        raise InvalidError.of(problems)
    return found


def expected_version(request: Request, document: dict[str, Any] | None) -> int:
    """The version a change is meant for. ``UnversionedError`` when neither place says one."""
    text = request.headers.get("If-Match", "").strip()
    if text:
        if not _VERSION.fullmatch(text):
            raise InvalidError.of([ConfigError("must be an ETag of the object", path="If-Match")])
        return int(text.removeprefix("W/").strip('"'))
    version = version_of((document or {}).get("metadata"))
    if version is not None:
        return version
    raise UnversionedError(
        "say which version this changes: send the object's ETag as If-Match, or its resourceVersion"
    )


def routes(service: Service, filters: dict[str, str]) -> list[URLPattern]:
    """The addresses of a kind: all objects of it, and one of them. ``filters`` are query -> look-up."""
    return [
        path(service.plural, _list_view(service, filters).as_view(), name=f"{service.plural}-list"),
        path(f"{service.plural}/<str:name>", _one_view(service).as_view(), name=f"{service.plural}-one"),
    ]


def _list_view(service: Service, filters: dict[str, str]) -> type[APIView]:
    class ListView(APIView):
        """All objects of a kind."""

        def get(self, request: Request) -> Response:
            rows = service.rows(actor_of(request))
            return Response(page(request, rows, service.document, orders=ORDERS, filters=filters))

        def post(self, request: Request) -> Response:
            row, document = service.post(actor_of(request), document_of(request))
            headers = headers_of(row, Looked().missing(service, row))
            return Response(document, status=201, headers=headers)

    parameters = [
        OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
        OpenApiParameter("offset", {"type": "integer", "minimum": 0}),
        OpenApiParameter("order", {"type": "string", "enum": [*ORDERS, *(f"-{name}" for name in ORDERS)]}),
        *(OpenApiParameter(name, str, description=f"only objects of this {name}") for name in filters),
    ]
    return extend_schema_view(
        get=extend_schema(
            operation_id=f"{service.plural}_list",
            tags=[service.plural],
            parameters=parameters,
            responses=openapi.answers({200: openapi.page_of(service)}, 422),
        ),
        post=extend_schema(
            operation_id=f"{service.plural}_create",
            tags=[service.plural],
            request=openapi.body(openapi.reference(service)),
            responses=openapi.answers({201: openapi.reference(service)}, 409, 422),
        ),
    )(ListView)


def _one_view(service: Service) -> type[APIView]:
    class OneView(APIView):
        """One object of a kind."""

        def get(self, request: Request, name: str) -> Response:
            return shown(service, service.get(actor_of(request), name))

        def put(self, request: Request, name: str) -> Response:
            document = document_of(request)
            version = expected_version(request, document)
            row = service.update(actor_of(request), name, document, version)
            return shown(service, row, warnings=Looked().missing(service, row))

        def delete(self, request: Request, name: str) -> Response:
            service.delete(actor_of(request), name, expected_version(request, None))
            return Response(status=204)

    tags = [service.plural]
    return extend_schema_view(
        get=extend_schema(
            operation_id=f"{service.plural}_get",
            tags=tags,
            responses=openapi.answers({200: openapi.reference(service)}, 404),
        ),
        put=extend_schema(
            operation_id=f"{service.plural}_update",
            tags=tags,
            parameters=[openapi.IF_MATCH],
            request=openapi.body(openapi.reference(service)),
            responses=openapi.answers({200: openapi.reference(service)}, 404, 412, 422, 428),
        ),
        delete=extend_schema(
            operation_id=f"{service.plural}_delete",
            tags=tags,
            parameters=[openapi.IF_MATCH],
            responses=openapi.answers({204: None}, 404, 409, 412, 422, 428),
        ),
    )(OneView)


def shown(service: Service, row: Any, warnings: Sequence[Detail] = ()) -> Response:
    """An object as the answer to a request."""
    return Response(service.document(row), headers=headers_of(row, warnings))


def headers_of(row: Any, warnings: Sequence[Detail] = ()) -> dict[str, str]:
    """Which version this is, and what is odd about it; what is shown once is kept by no cache on the way."""
    headers = {"ETag": f'"{row.version}"', "Cache-Control": "no-store"}
    if warnings:
        # As Kubernetes warns: a status code of the header's own, no agent, a text.
        headers["Warning"] = ", ".join(f'299 - "{part.path}: {part.message}"' for part in warnings)
    return headers
