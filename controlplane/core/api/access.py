"""Users and their tokens, for administrators. A token and a drawn password are told once, in one answer."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.core import passwords, tokens, users
from controlplane.core.api import openapi
from controlplane.core.api.pages import MAX_LIMIT, page
from controlplane.core.api.resources import actor_of, body_of, expected_version, headers_of
from controlplane.core.models import User
from controlplane.core.roles import Binding, BoundTo, Role
from dataplane.config.values import Moment, check_moment
from dataplane.errors import ConfigError

TAGS: Final = ["access"]
NO_STORE: Final = {"Cache-Control": "no-store"}


class NewUser(msgspec.Struct, rename="camel"):
    """Somebody to let in."""

    name: str
    role: Role = Role.VIEWER


class ChangedUser(msgspec.Struct, rename="camel"):
    """What a user is to be; what is left out stays."""

    role: Role | None = None
    active: bool | None = None


class NewPassword(msgspec.Struct, rename="camel"):
    """A password; without one it is drawn."""

    password: str | None = None


class Bound(msgspec.Struct, rename="camel"):
    """What a worker's token is for: a pool, a gateway or a payload processor, or one node of it."""

    pool: str | None = None
    gateway: str | None = None
    processor: str | None = None
    node: str = ""

    def __post_init__(self) -> None:
        if len(self._named()) != 1:
            raise ConfigError("must name a pool, a gateway or a payload processor, one of them")

    def _named(self) -> list[tuple[BoundTo, str]]:
        said = {
            BoundTo.POOL: self.pool,
            BoundTo.GATEWAY: self.gateway,
            BoundTo.PROCESSOR: self.processor,
        }
        return [(kind, name) for kind, name in said.items() if name is not None]

    def binding(self) -> Binding:
        """As services know it."""
        ((kind, name),) = self._named()
        return Binding(kind, name, self.node)


class NewToken(msgspec.Struct, rename="camel"):
    """A token to mint."""

    name: str
    expires_at: Moment | None = None
    binding: Bound | None = None

    def __post_init__(self) -> None:
        if self.expires_at is None:
            return
        check_moment(self.expires_at, "expiresAt")
        if self.expires_at <= timezone.now():
            raise ConfigError("is over already", path="expiresAt")


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


_ROLE: Final = {"type": "string", "enum": list(Role)}
_NAME: Final = {"type": "string", "pattern": f"^{openapi.NAME}$"}
_MOMENT: Final = {"type": "string", "format": "date-time"}
_NO_MOMENT: Final = {"type": ["string", "null"], "format": "date-time"}
_USER: Final = _object(
    ["name", "role", "active", "hasPassword", "createdAt", "lastLoginAt", "version"],
    name={"type": "string"},
    role=_ROLE,
    active={"type": "boolean"},
    hasPassword={"type": "boolean"},
    createdAt=_MOMENT,
    lastLoginAt=_NO_MOMENT,
    version={"type": "integer", "minimum": 1},
)
_BINDING: Final = {
    **_object(
        [],
        pool=_NAME,
        gateway=_NAME,
        processor=_NAME,
        node={"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,253}$"},
    ),
    "type": ["object", "null"],
    "description": "of a worker's token: a pool, gateway or payload processor, and one node of it",
}
_TOKEN: Final = _object(
    ["user", "name", "prefix", "createdAt", "expiresAt", "lastUsedAt", "binding"],
    user={"type": "string"},
    name={"type": "string"},
    prefix={"type": "string", "description": "the part that may be shown"},
    createdAt=_MOMENT,
    expiresAt=_NO_MOMENT,
    lastUsedAt=_NO_MOMENT,
    binding=_BINDING,
    token={"type": "string", "description": "all of it, when it is minted and never again"},
)


def _listing(orders: dict[str, str], *filters: str) -> list[OpenApiParameter]:
    signed = [f"{sign}{name}" for name in orders for sign in ("", "-")]
    return [
        OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
        OpenApiParameter("offset", {"type": "integer", "minimum": 0}),
        OpenApiParameter("order", {"type": "string", "enum": signed}),
        *(OpenApiParameter(name, str) for name in filters),
    ]


_USER_ORDERS: Final = {"name": "username", "role": "role", "created": "date_joined"}
_USER_FILTERS: Final = {"name": "username", "role": "role"}
_TOKEN_ORDERS: Final = {"name": "name", "created": "created_at", "used": "last_used_at"}
_TOKEN_FILTERS: Final = {"name": "name", "prefix": "prefix"}


class UsersView(APIView):
    """Everybody."""

    @extend_schema(
        operation_id="users_list",
        tags=TAGS,
        parameters=_listing(_USER_ORDERS, *_USER_FILTERS),
        responses=openapi.answers({200: openapi.page(_USER)}, 422),
    )
    def get(self, request: Request) -> Response:
        """Users by name."""
        rows = users.rows(actor_of(request))
        return Response(page(request, rows, _user, orders=_USER_ORDERS, filters=_USER_FILTERS))

    @extend_schema(
        operation_id="users_create",
        tags=TAGS,
        request=openapi.body(_object(["name"], name={**_NAME, "maxLength": users.MAX_USERNAME}, role=_ROLE)),
        responses=openapi.answers({201: _USER}, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Let somebody in; he has no password and no token yet."""
        actor = actor_of(request)
        wanted = body_of(request, NewUser)
        user = users.create(actor, wanted.name, wanted.role)
        return Response(_user(user), status=201, headers=headers_of(user))


class UserView(APIView):
    """One of them."""

    @extend_schema(operation_id="users_get", tags=TAGS, responses=openapi.answers({200: _USER}, 404))
    def get(self, request: Request, name: str) -> Response:
        """Role, and whether he may log in."""
        return _shown(users.get(actor_of(request), name))

    @extend_schema(
        operation_id="users_update",
        tags=TAGS,
        parameters=[openapi.IF_MATCH],
        request=openapi.body(
            _object([], role={"anyOf": [_ROLE, {"type": "null"}]}, active={"type": ["boolean", "null"]})
        ),
        responses=openapi.answers({200: _USER}, 404, 409, 412, 422, 428),
    )
    def patch(self, request: Request, name: str) -> Response:
        """Another role; ``active`` false ends his access at once, true restores it."""
        actor = actor_of(request)
        users.get(actor, name)
        wanted = body_of(request, ChangedUser)
        version = expected_version(request, None)
        return _shown(users.change(actor, name, role=wanted.role, active=wanted.active, version=version))


class PasswordView(APIView):
    """How somebody logs in to the console."""

    @extend_schema(
        operation_id="users_password",
        tags=TAGS,
        request=openapi.body(_object([], password={"type": ["string", "null"]})),
        responses=openapi.answers(
            {
                200: _object(
                    ["password"], password={"type": "string", "description": "drawn; told this once"}
                ),
                204: None,
            },
            404,
            422,
        ),
    )
    def post(self, request: Request, name: str) -> Response:
        """The given password is the user's (204), or without one a random one is drawn and told (200)."""
        actor = actor_of(request)
        users.get(actor, name)
        wanted = body_of(request, NewPassword)
        if wanted.password is None:
            return Response({"password": passwords.draw(actor, name)}, headers=NO_STORE)
        passwords.put(actor, name, wanted.password)
        return Response(status=204)


class TokensView(APIView):
    """What programs act as a user with."""

    @extend_schema(
        operation_id="tokens_list",
        tags=TAGS,
        parameters=_listing(_TOKEN_ORDERS, *_TOKEN_FILTERS),
        responses=openapi.answers({200: openapi.page(_TOKEN)}, 404, 422),
    )
    def get(self, request: Request, name: str) -> Response:
        """A user's tokens, by their prefixes."""
        actor = actor_of(request)
        rows = tokens.tokens(actor).filter(user=users.get(actor, name))
        return Response(page(request, rows, tokens.describe, orders=_TOKEN_ORDERS, filters=_TOKEN_FILTERS))

    @extend_schema(
        operation_id="tokens_mint",
        tags=TAGS,
        request=openapi.body(_object(["name"], name=_NAME, expiresAt=_NO_MOMENT, binding=_BINDING)),
        responses=openapi.answers({201: _TOKEN}, 404, 409, 422),
    )
    def post(self, request: Request, name: str) -> Response:
        """``token`` is the new token; it is told this once."""
        actor = actor_of(request)
        user = users.get(actor, name)
        wanted = body_of(request, NewToken)
        binding = None if wanted.binding is None else wanted.binding.binding()
        issued = tokens.issue(actor, user, wanted.name, wanted.expires_at, binding)
        shown = {**tokens.describe(issued.row), "token": issued.text}
        return Response(shown, status=201, headers=NO_STORE)


class TokenView(APIView):
    """One token."""

    @extend_schema(operation_id="tokens_revoke", tags=TAGS, responses=openapi.answers({204: None}, 404))
    def delete(self, request: Request, name: str, token: str) -> Response:
        """Take it back; it is not recognised from now on."""
        actor = actor_of(request)
        tokens.revoke(actor, users.get(actor, name), token)
        return Response(status=204)


def _user(user: User) -> dict[str, Any]:
    return {
        **users.describe(user),
        "hasPassword": user.has_usable_password(),
        "createdAt": user.date_joined.isoformat(),
        "lastLoginAt": None if user.last_login is None else user.last_login.isoformat(),
        "version": user.version,
    }


def _shown(user: User) -> Response:
    return Response(_user(user), headers=headers_of(user))


urlpatterns = [
    path("users", UsersView.as_view(), name="users-list"),
    path("users/<str:name>", UserView.as_view(), name="users-one"),
    path("users/<str:name>/password", PasswordView.as_view(), name="users-password"),
    path("users/<str:name>/tokens", TokensView.as_view(), name="users-tokens-list"),
    path("users/<str:name>/tokens/<str:token>", TokenView.as_view(), name="users-token"),
]
