"""A configuration's life over HTTP: judged, planned, published, watched, stopped, and gone back on."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.configs import plans, revisions, rollouts
from controlplane.configs.api import shapes
from controlplane.configs.api.bodies import (
    BackBody,
    HaltBody,
    OrderBody,
    PublishBody,
    body_of,
    canary_of,
    number_of,
    required,
    wish_of,
)
from controlplane.configs.services import ConfigService
from controlplane.core.api import openapi
from controlplane.core.api.pages import page, query_of
from controlplane.core.api.resources import actor_of, document_of

_PAGES = [
    OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": 500}),
    OpenApiParameter("offset", {"type": "integer", "minimum": 0}),
    OpenApiParameter("order", {"type": "string", "enum": ["number", "-number"]}),
]
_REVISION = OpenApiParameter("revision", {"type": "integer", "minimum": 1}, description="default: the newest")


class ConfigView(APIView):
    """Of a kind of configuration; there is a class of each view for each kind."""

    service: ClassVar[ConfigService]

    @property
    def kind(self) -> str:
        """Of the documents."""
        return self.service.kind


class ValidateView(ConfigView):
    """Judges a document and keeps nothing."""

    @extend_schema(
        responses=openapi.answers({200: shapes.VERDICT}, 422),
    )
    def post(self, request: Request, name: str) -> Response:
        """What the document comes to; 422 with everything that is wrong with it."""
        return Response(plans.validate(actor_of(request), name, document_of(request), self.service))


class PlanView(ConfigView):
    """What publishing would change, and for whom."""

    @extend_schema(
        parameters=[_REVISION, OpenApiParameter("canary", str, description="10% or 2")],
        responses=openapi.answers({200: shapes.PLAN}, 404, 422),
    )
    def get(self, request: Request, name: str) -> Response:
        """The difference to the active revision, and the workers, the canary first."""
        query = query_of(request, "revision", "canary")
        canary = canary_of(query.get("canary"))
        return Response(plans.plan(actor_of(request), name, number_of(query, "revision"), canary, self.kind))


class RevisionsView(ConfigView):
    """The history of a document."""

    @extend_schema(
        parameters=_PAGES,
        responses=openapi.answers({200: openapi.page(shapes.REVISION)}, 404, 422),
    )
    def get(self, request: Request, name: str) -> Response:
        """Newest first."""
        rows = plans.document_of(actor_of(request), name, self.kind).revisions.select_related("parent")
        return Response(page(request, rows, revisions.describe, orders={"number": "number"}, filters={}))


class RevisionView(ConfigView):
    """One revision."""

    @extend_schema(
        responses=openapi.answers({200: shapes.WHOLE_REVISION}, 404),
    )
    def get(self, request: Request, name: str, number: int) -> Response:
        """With its content."""
        row = plans.document_of(actor_of(request), name, self.kind)
        return Response(revisions.describe(revisions.revision_of(row, number), whole=True))


class DiffView(ConfigView):
    """Two revisions beside one another."""

    @extend_schema(
        parameters=[
            OpenApiParameter(name, {"type": "integer", "minimum": 1}, required=True)
            for name in ("from", "to")
        ],
        responses=openapi.answers({200: shapes.DIFF}, 404, 422),
    )
    def get(self, request: Request, name: str) -> Response:
        """Values that differ."""
        query = query_of(request, "from", "to")
        before, after = required(query, "from"), required(query, "to")
        return Response(plans.compare(actor_of(request), name, before, after, self.kind))


class RolloutsView(ConfigView):
    """All rollouts of a document."""

    @extend_schema(
        parameters=_PAGES,
        responses=openapi.answers({200: openapi.page(shapes.ROLLOUT)}, 404, 422),
    )
    def get(self, request: Request, name: str) -> Response:
        """Newest first."""
        rows = plans.document_of(actor_of(request), name, self.kind).rollouts.select_related("revision")
        return Response(
            page(
                request,
                rows,
                rollouts.brief,
                orders={"number": "revision__number"},
                filters={"stage": "stage"},
            )
        )


class RolloutView(ConfigView):
    """The newest rollout of a document."""

    @extend_schema(
        responses=openapi.answers({200: shapes.WHOLE_ROLLOUT}, 404),
    )
    def get(self, request: Request, name: str) -> Response:
        """How far it is, worker by worker."""
        return _shown(*rollouts.current(actor_of(request), name, self.kind))


class PublishView(ConfigView):
    """Begins a rollout."""

    @extend_schema(
        request=openapi.body(shapes.body(PublishBody)),
        responses=openapi.answers({201: shapes.ROLLOUT}, 404, 409, 422),
    )
    def post(self, request: Request, name: str) -> Response:
        """To everybody, or to a canary first."""
        wish = wish_of(body_of(request, PublishBody))
        return Response(
            rollouts.brief(rollouts.publish(actor_of(request), name, wish, self.kind)), status=201
        )


class PromoteView(ConfigView):
    """The canary is good."""

    @extend_schema(
        request=openapi.body(shapes.body(OrderBody)),
        responses=openapi.answers({200: shapes.ROLLOUT}, 404, 409, 422),
    )
    def post(self, request: Request, name: str) -> Response:
        """On to everybody."""
        body = body_of(request, OrderBody)
        return Response(rollouts.brief(rollouts.promote(actor_of(request), name, body.rollout, self.kind)))


class HaltView(ConfigView):
    """Stop."""

    @extend_schema(
        request=openapi.body(shapes.body(HaltBody)),
        responses=openapi.answers({200: shapes.ROLLOUT}, 404, 409, 422),
    )
    def post(self, request: Request, name: str) -> Response:
        """Nobody else gets the revision."""
        body = body_of(request, HaltBody)
        return Response(
            rollouts.brief(rollouts.halt(actor_of(request), name, body.reason, body.rollout, self.kind))
        )


class RollBackView(ConfigView):
    """Back."""

    @extend_schema(
        request=openapi.body(shapes.body(BackBody)),
        responses=openapi.answers({201: shapes.ROLLOUT}, 404, 409, 422),
    )
    def post(self, request: Request, name: str) -> Response:
        """A new revision with an older content, for everybody."""
        body = body_of(request, BackBody)
        found = rollouts.roll_back(actor_of(request), name, body.revision, body.rollout, self.kind)
        return Response(rollouts.brief(found), status=201)


def _shown(row: Any, rollout: Any) -> Response:
    return Response(msgspec.to_builtins(rollouts.detailed(row, rollout)))
