"""Passwords of people, who log in to the console with them; programs have tokens.

A password is known to who chose or drew it and to nobody afterwards: what is kept is Django's salted hash.
"""

from __future__ import annotations

import secrets
from typing import Final

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.core import audit, throttle, users
from controlplane.core.errors import ForbiddenError, InvalidError
from controlplane.core.resources import is_storable
from controlplane.core.roles import Action, Actor, Role, require
from dataplane.errors import ConfigError

RANDOM_BYTES: Final = 15
"""Of a drawn password: 120 bits, 20 characters."""
MAX_CHARACTERS: Final = 1000
"""Hashing a long text takes long."""


def put(actor: Actor, username: str, password: str) -> None:
    """Give a user this password. ``InvalidError`` when it is weak, or nobody of this name may log in."""
    require(actor, Action.WRITE, users.KIND)
    _put(actor, username, password)


def change_own(actor: Actor, username: str, password: str) -> None:
    """Give oneself this password; whoever calls has seen the old one. ``ForbiddenError`` for another's."""
    if actor.name != username:
        raise ForbiddenError(f"{actor.name} may not change the password of {username}")
    _put(actor, username, password)


def _put(actor: Actor, username: str, password: str) -> None:
    user = users.find(username)
    problems = []
    if user.role == Role.WORKER:
        problems.append("workers do not log in; give them a token")
    elif not is_storable(password):
        problems.append("This password holds what is no text: a NUL or half a character.")
    elif len(password) > MAX_CHARACTERS:
        problems.append(f"This password is longer than {MAX_CHARACTERS} characters.")
    else:
        try:
            validate_password(password, user)
        except ValidationError as error:
            problems += error.messages
    if problems:
        raise InvalidError.of([ConfigError(problem, path="password") for problem in problems])
    with transaction.atomic():
        user.set_password(password)
        user.save(update_fields=["password"])
        shown = users.describe(user)
        audit.record(actor, "set-password", users.KIND, username, before=shown, after=shown)
        throttle.release(username)  # guesses at the password before say nothing of this one


def draw(actor: Actor, username: str) -> str:
    """Give a user a random password and return it."""
    password = secrets.token_urlsafe(RANDOM_BYTES)
    put(actor, username, password)
    return password
