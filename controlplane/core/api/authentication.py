"""Who calls the API: the bearer of a token."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from controlplane.core.errors import ForbiddenError
from controlplane.core.roles import Actor, Channel
from controlplane.core.tokens import recognise

SCHEME: Final = "bearer"
CHANNEL: Final = "X-Pointsman-Channel"
"""Tells the audit log which of our own programs calls; anything unknown counts as the API."""


class TokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer pmt_...``; ``request.auth`` is the actor."""

    def authenticate(self, request: Request) -> tuple[Any, Actor] | None:
        """None when no token was given. ``AuthenticationFailed`` when it is nobody's.

        ``ForbiddenError`` for one that is bound: it opens streams, and nothing here says for which pool
        or gateway somebody asks.
        """
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return None
        if scheme.lower() != SCHEME or not text:
            raise AuthenticationFailed("use Authorization: Bearer with an API token")
        try:
            channel = Channel(request.headers.get(CHANNEL, Channel.API))
        except ValueError:
            channel = Channel.API
        found = recognise(text.strip(), channel)
        if found is None:
            raise AuthenticationFailed("the token is not known, or its time is over")
        if (binding := found[1].binding) is not None:
            raise ForbiddenError(f"a token of the {binding.kind} {binding.name} is for its streams alone")
        return found

    def authenticate_header(self, request: Request) -> str:
        """What a caller without a token should use."""
        return "Bearer"


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # registers itself
    """Describes the authentication in the API's description."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        """A bearer token."""
        return {"type": "http", "scheme": "bearer"}
