"""Guardrails over HTTP: policies tried on a text or a body, before they are in force or as they are."""

from __future__ import annotations

from typing import Final

import msgspec
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.configs.api.shapes import body as shape_of
from controlplane.configs.api.urls import life_of
from controlplane.core.api import openapi
from controlplane.core.api.resources import actor_of
from controlplane.core.errors import InvalidError
from controlplane.core.roles import Action, require
from controlplane.policies import trials, verdicts
from controlplane.policies.services import POLICY, GuardrailPolicyService
from controlplane.policies.trials import TrialBody
from dataplane.config.decode import decode_struct
from dataplane.errors import ConfigError, did_you_mean
from dataplane.verdicts import VerdictRecord
from ipp.guardrails.trial import TrialResult

KNOWN: Final = ("limit", "before", *verdicts.FILTERS)
"""Of a question for verdicts."""


class GuardrailTestView(APIView):
    """Nothing is changed, and nothing of what is tried is kept."""

    @extend_schema(
        operation_id="guardrails_test",
        tags=["guardrails"],
        request={"application/json": shape_of(TrialBody)},
        responses=openapi.answers({200: shape_of(TrialResult)}, 422),
    )
    def post(self, request: Request) -> Response:
        """Every match, what would be done, and what would be left of the text."""
        require(actor_of(request), Action.READ, POLICY)
        problems: list[ConfigError] = []
        body = decode_struct(request.data, TrialBody, "", problems)
        if body is None or problems:
            raise InvalidError.of(problems or [ConfigError("must be a mapping")])
        return Response(msgspec.to_builtins(trials.run(actor_of(request), body)))


class VerdictsView(APIView):
    """What guardrails found lately, as processors tell it."""

    @extend_schema(
        operation_id="guardrails_verdicts",
        tags=["guardrails"],
        parameters=[
            OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": verdicts.MOST}),
            OpenApiParameter("before", str, description="older than this id"),
            *(OpenApiParameter(name, str) for name in verdicts.FILTERS),
        ],
        responses=openapi.answers(
            {
                200: {
                    "type": "object",
                    "required": ["configured", "available", "items", "older"],
                    "properties": {
                        "configured": {"type": "boolean", "description": "whether a Valkey is named"},
                        "available": {"type": "boolean", "description": "whether it answers"},
                        "items": {"type": "array", "items": shape_of(VerdictRecord)},
                        "older": {
                            "type": ["string", "null"],
                            "description": "ask for what is before this id; null when there is nothing",
                        },
                    },
                }
            },
            422,
        ),
    )
    def get(self, request: Request) -> Response:
        """The newest first; where something was and of which kind, never what."""
        actor, query = actor_of(request), request.query_params
        require(actor, Action.READ, POLICY)
        problems = [
            ConfigError(f"unknown parameter{did_you_mean(name, KNOWN)}", path=name)
            for name in query
            if name not in KNOWN
        ]
        text = query.get("limit", "100")
        if not (text.isascii() and text.isdigit() and len(text) < 5 and 0 < int(text) <= verdicts.MOST):
            problems.append(ConfigError(f"must be a number from 1 to {verdicts.MOST}", path="limit"))
        before = query.get("before")
        if before is not None and not verdicts.is_id(before):
            problems.append(ConfigError("must be what an answer called older", path="before"))
        if problems:
            raise InvalidError.of(problems)
        wanted = {name: query[name] for name in verdicts.FILTERS if name in query}
        found = verdicts.page(actor, verdicts.Question(wanted), int(text), before)
        return Response(
            {
                "configured": found.source is not verdicts.Source.UNSET,
                "available": found.source is verdicts.Source.HERE,
                "items": [msgspec.to_builtins(each.record) | {"id": each.id} for each in found.items],
                "older": found.older,
            }
        )


urlpatterns: Final[list[URLPattern]] = [
    *life_of(GuardrailPolicyService()),
    path("guardrails/verdicts", VerdictsView.as_view(), name="guardrails-verdicts"),
    path("guardrails/test", GuardrailTestView.as_view(), name="guardrails-test"),
]
