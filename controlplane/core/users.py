"""People and programs that may use the control plane.

There is always an administrator who may log in: whoever is the last one keeps role and access. Somebody who
may not log in any more is refused with his next request, whether he shows a token or a session.
"""

from __future__ import annotations

from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from controlplane.core import audit
from controlplane.core.errors import ConflictError, InvalidError, MissingError, StaleError
from controlplane.core.models import User
from controlplane.core.resources import is_storable
from controlplane.core.roles import Action, Actor, Channel, Role, require
from dataplane.errors import ConfigError
from epp.objects.schema import check_name

KIND: Final = "User"
MAX_USERNAME: Final = 150

SYSTEM: Final = Actor("system", Role.ADMIN, Channel.CLI)
"""Whoever can run commands on the control plane's machine: he can write to its database anyway."""


def rows(actor: Actor) -> QuerySet[User]:
    """All users, for filtering and cutting into pages."""
    require(actor, Action.READ, KIND)
    return User.objects.order_by("username")


def get(actor: Actor, username: str) -> User:
    """The user of this name. ``MissingError`` when there is none."""
    require(actor, Action.READ, KIND)
    return _one(User.objects.all(), username)


def create(actor: Actor, username: str, role: Role) -> User:
    """A new user, without a password. ``ConflictError`` when the name is taken."""
    require(actor, Action.WRITE, KIND)
    try:
        check_name(username, "name")
        if len(username) > MAX_USERNAME:
            raise ConfigError(f"must have at most {MAX_USERNAME} characters", path="name")
    except ConfigError as error:
        raise InvalidError.of([error]) from None
    user = User(username=username, role=role)
    user.set_unusable_password()
    try:
        with transaction.atomic():
            user.save(force_insert=True)
            audit.record(actor, "create", KIND, username, before=None, after=describe(user))
    except IntegrityError:
        raise ConflictError(f"there is a {KIND} {username} already") from None
    return user


def change(
    actor: Actor,
    username: str,
    *,
    role: Role | None = None,
    active: bool | None = None,
    version: int | None = None,
) -> User:
    """Give a user another role, or end or restore his access; None leaves what is.

    ``version`` is the one the change is meant for; ``StaleError`` when the user has another.
    ``ConflictError`` when no administrator would be left.
    """
    require(actor, Action.WRITE, KIND)
    with transaction.atomic():
        # All changes that could take the last administrator away wait for one another here.
        admins = _active_admins()
        user = _one(User.objects.select_for_update(), username)
        before = describe(user)
        if version is not None and version != user.version:
            raise StaleError(KIND, username, version, user.version, before)
        if role is not None:
            user.role = role
        if active is not None:
            user.is_active = active
        after = describe(user)
        if after == before:
            return user
        if admins == [user.pk] and not (user.is_active and user.role == Role.ADMIN):
            raise ConflictError(f"{username} is the last administrator; make somebody else one first")
        if user.role == Role.WORKER:
            user.set_unusable_password()  # programs do not log in, and his sessions end with it
        user.version += 1
        user.save(update_fields=["role", "is_active", "password", "version"])
        audit.record(actor, "update", KIND, username, before=before, after=after)
    return user


def put(actor: Actor, username: str, role: Role) -> User:
    """The user of this name with this role, made if he is not there. ``InvalidError`` for a bad name."""
    require(actor, Action.WRITE, KIND)
    is_there = is_storable(username) and User.objects.filter(username=username).exists()
    return change(actor, username, role=role) if is_there else create(actor, username, role)


def find(username: str) -> User:
    """The user of this name. ``InvalidError`` when there is none."""
    user = User.objects.filter(username=username).first()
    if user is None:
        raise InvalidError.of([ConfigError(f"there is no user {username}", path="user")])
    return user


def describe(user: User) -> dict[str, Any]:
    """A user as he is shown and audited."""
    return {"name": user.username, "role": str(user.role), "active": user.is_active}


def _one(found: QuerySet[User], username: str) -> User:
    user = found.filter(username=username).first() if is_storable(username) else None
    if user is None:
        raise MissingError(f"there is no {KIND} {username}")
    return user


def _active_admins() -> list[int]:
    admins = User.objects.select_for_update().filter(role=Role.ADMIN, is_active=True)
    return [user.pk for user in admins.order_by("pk")]
