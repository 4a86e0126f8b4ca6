"""What workers ask and report over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.configs import asking, workers
from controlplane.configs.api import shapes
from controlplane.configs.api.bodies import AckBody, ObservationBody, body_of
from controlplane.core.api import openapi
from controlplane.core.api.pages import query_of
from controlplane.core.api.resources import actor_of
from controlplane.core.errors import Detail, InvalidError
from dataplane.errors import ConfigError

TAGS = ["workers"]


class ConfigView(APIView):
    """What a worker should run."""

    @extend_schema(
        operation_id="workers_config",
        tags=TAGS,
        parameters=[
            OpenApiParameter("pool", str, required=True),
            OpenApiParameter(
                "If-None-Match", str, OpenApiParameter.HEADER, description="ETag of the last one"
            ),
        ],
        responses=openapi.answers({200: shapes.DESIRED, 204: None, 304: None}, 404, 422),
    )
    def get(self, request: Request, worker: str) -> Response:
        """204 when nothing is published yet, 304 when it is what the worker has."""
        pool = query_of(request, "pool").get("pool")
        if pool is None:
            raise InvalidError.of([ConfigError("is required", path="pool")])
        found = asking.desired(actor_of(request), pool, worker)
        if found is None:
            return Response(status=204)
        headers = {"ETag": f'"{found.etag}"', "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match", "").removeprefix("W/") == headers["ETag"]:
            return Response(status=304, headers=headers)
        answer: dict[str, Any] = msgspec.to_builtins(found)
        return Response(answer, headers=headers)


class AcksView(APIView):
    """What became of a revision."""

    @extend_schema(
        operation_id="workers_ack",
        tags=TAGS,
        request=openapi.body(shapes.body(AckBody)),
        responses=openapi.answers({204: None}, 404, 422),
    )
    def post(self, request: Request, worker: str) -> Response:
        """Applied, or with problems: refused."""
        body = body_of(request, AckBody)
        problems = [Detail(problem.path, problem.message) for problem in body.problems]
        workers.acknowledge(actor_of(request), worker, body.document, body.revision, problems)
        return Response(status=204)


class ObservationsView(APIView):
    """How requests fare since a revision runs."""

    @extend_schema(
        operation_id="workers_observe",
        tags=TAGS,
        request=openapi.body(shapes.body(ObservationBody)),
        responses=openapi.answers({204: None}, 404, 422),
    )
    def post(self, request: Request, worker: str) -> Response:
        """Totals; the guard of the rollout judges them."""
        body = body_of(request, ObservationBody)
        actor = actor_of(request)
        workers.observe(actor, worker, body.document, body.revision, body.requests, body.errors)
        return Response(status=204)
