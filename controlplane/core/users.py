"""People and programs that may use the control plane."""

from __future__ import annotations

from typing import Any, Final

from django.db import transaction

from controlplane.core import audit
from controlplane.core.errors import InvalidError
from controlplane.core.models import User
from controlplane.core.roles import Action, Actor, Channel, Role, require
from dataplane.errors import ConfigError
from epp.objects.schema import check_name

KIND: Final = "User"

SYSTEM: Final = Actor("system", Role.ADMIN, Channel.CLI)
"""Whoever can run commands on the control plane's machine: he can write to its database anyway."""


def put(actor: Actor, username: str, role: Role) -> User:
    """The user of this name with this role, made if he is not there. ``InvalidError`` for a bad name."""
    require(actor, Action.WRITE, KIND)
    try:
        check_name(username, "name")
    except ConfigError as error:
        raise InvalidError.of([error]) from None
    with transaction.atomic():
        user = User.objects.filter(username=username).first()
        before = None if user is None else describe(user)
        if user is None:
            user = User(username=username)
            user.set_unusable_password()
        user.role = role
        after = describe(user)
        if after != before:
            user.save()
            action = "create" if before is None else "update"
            audit.record(actor, action, KIND, username, before=before, after=after)
    return user


def find(username: str) -> User:
    """The user of this name. ``InvalidError`` when there is none."""
    user = User.objects.filter(username=username).first()
    if user is None:
        raise InvalidError.of([ConfigError(f"there is no user {username}", path="user")])
    return user


def describe(user: User) -> dict[str, Any]:
    """A user as he is shown and audited."""
    return {"name": user.username, "role": str(user.role), "active": user.is_active}
