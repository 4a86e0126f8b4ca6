"""What virtual keys can do beyond documents: be rotated, be revoked, and have been used."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.core.api import openapi
from controlplane.core.api.resources import actor_of, body_of, expected_version, headers_of, shown
from controlplane.tenancy.services import MAX_USES, Use, VirtualKeyService
from dataplane.config.decode import Duration
from dataplane.config.schema import DURATION
from dataplane.config.tenancy import Digest
from dataplane.config.values import Moment, check_moment
from dataplane.errors import ConfigError

SERVICE: Final = VirtualKeyService()
DAY_S: Final = 86_400.0
TAGS: Final = [SERVICE.plural]


class Rotation(msgspec.Struct, rename="camel"):
    """How a key is to be rotated."""

    grace: Duration = Duration(DAY_S)
    """How long the key before it still holds."""


class ReportedUse(msgspec.Struct, rename="camel"):
    """When a key was last used."""

    key_digest: Digest
    at: Moment

    def __post_init__(self) -> None:
        check_moment(self.at, "at")


class Report(msgspec.Struct, rename="camel"):
    """What a gateway reports."""

    uses: list[ReportedUse]

    def __post_init__(self) -> None:
        if len(self.uses) > MAX_USES:
            raise ConfigError(f"has {len(self.uses)} uses; report at most {MAX_USES} at once", path="uses")


class RotateView(APIView):
    """Another key in place of one."""

    @extend_schema(
        operation_id="virtualkeys_rotate",
        tags=TAGS,
        parameters=[openapi.IF_MATCH],
        request=openapi.body(
            {
                "type": ["object", "null"],
                "additionalProperties": False,
                "properties": {"grace": {**DURATION, "default": "24h"}},
            }
        ),
        responses=openapi.answers({200: openapi.reference(SERVICE)}, 404, 409, 412, 422, 428),
    )
    def post(self, request: Request, name: str) -> Response:
        """The document's ``status.key`` is the new key; it is shown this once."""
        version = expected_version(request, None)
        wanted = body_of(request, Rotation)
        issued = SERVICE.rotate(actor_of(request), name, timedelta(seconds=wanted.grace), version)
        return Response(SERVICE.with_text(issued), headers=headers_of(issued.row))


class RevokeView(APIView):
    """The end of a key."""

    @extend_schema(
        operation_id="virtualkeys_revoke",
        tags=TAGS,
        parameters=[openapi.IF_MATCH],
        request=None,
        responses=openapi.answers({200: openapi.reference(SERVICE)}, 404, 412, 422, 428),
    )
    def post(self, request: Request, name: str) -> Response:
        """For ever."""
        return shown(SERVICE, SERVICE.revoke(actor_of(request), name, expected_version(request, None)))


class UsesView(APIView):
    """Reports of gateways."""

    @extend_schema(
        operation_id="virtualkeyuses_report",
        tags=TAGS,
        request=openapi.body(
            {
                "type": "object",
                "required": ["uses"],
                "additionalProperties": False,
                "properties": {
                    "uses": {
                        "type": "array",
                        "maxItems": MAX_USES,
                        "items": {
                            "type": "object",
                            "required": ["keyDigest", "at"],
                            "additionalProperties": False,
                            "properties": {
                                "keyDigest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                                "at": {"type": "string", "format": "date-time"},
                            },
                        },
                    }
                },
            }
        ),
        responses=openapi.answers(
            {
                200: {
                    "type": "object",
                    "required": ["noted"],
                    "properties": {"noted": {"type": "integer", "minimum": 0}},
                }
            },
            422,
        ),
    )
    def post(self, request: Request) -> Response:
        """Unknown keys are passed over; reports may come twice and late."""
        report = body_of(request, Report)
        uses = [Use(use.key_digest, use.at) for use in report.uses]
        return Response({"noted": SERVICE.note_uses(actor_of(request), uses)})


urlpatterns = [
    path("virtualkeys/<str:name>/rotate", RotateView.as_view(), name="virtualkeys-rotate"),
    path("virtualkeys/<str:name>/revoke", RevokeView.as_view(), name="virtualkeys-revoke"),
    path("virtualkeyuses", UsesView.as_view(), name="virtualkeyuses"),
]
