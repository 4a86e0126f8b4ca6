"""Who may do what: roles of people, each of which may do what the one before may, and more; and workers.

A worker is a program on the data plane: it asks for its own configuration and reports how that went, and may
do nothing else. Of people only administrators may act as a worker: reports of workers stop rollouts.

Services ask ``require`` before they do anything; nobody else decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from controlplane.core.errors import ForbiddenError


class Role(StrEnum):
    """What somebody is, from least to most powerful."""

    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Action(StrEnum):
    """What is done to objects of a kind."""

    READ = "read"
    WRITE = "write"
    FOLLOW = "follow"
    """Ask for what a worker should run, and report what became of it and what it is used for."""


class Channel(StrEnum):
    """Through which door a change came in."""

    API = "api"
    CLI = "cli"
    CONSOLE = "console"
    ADMIN = "admin"
    AUTOMATION = "automation"


class BoundTo(StrEnum):
    """What a worker's token may be for."""

    POOL = "pool"
    GATEWAY = "gateway"
    PROCESSOR = "processor"


class Binding(NamedTuple):
    """What a token is for alone: pickers of a pool, Envoys of a gateway, payload processors of a name, or one
    of them."""

    kind: BoundTo
    name: str
    """Of the pool, gateway or processor."""
    node: str = ""
    """Of the only worker that may use it; empty = all of them."""


_RANK: Final = {role: rank for rank, role in enumerate(Role)}

ENCRYPTION_KEY: Final = "EncryptionKey"

_ADMIN_ONLY: Final = frozenset({"User", "ApiToken", ENCRYPTION_KEY})
"""Kinds that give power over all others."""

_AUDIT: Final = "AuditEntry"


def least(action: Action, kind: str) -> Role:
    """The least role that may do this."""
    if kind in _ADMIN_ONLY or action is Action.FOLLOW:
        return Role.ADMIN
    if kind == _AUDIT:
        return Role.OPERATOR
    return Role.VIEWER if action is Action.READ else Role.OPERATOR


@dataclass(frozen=True, slots=True)
class Actor:
    """Whoever asks a service for something."""

    name: str
    role: Role
    channel: Channel = Channel.API
    user_id: int | None = None
    binding: Binding | None = None
    """Whoever has one may follow, and nothing else."""

    def may(self, action: Action, kind: str) -> bool:
        """Whether the role allows it."""
        if self.binding is not None and action is not Action.FOLLOW:
            return False
        if action is Action.FOLLOW and self.role is Role.WORKER:
            return True
        return _RANK[self.role] >= _RANK[least(action, kind)]


def require(actor: Actor, action: Action, kind: str) -> None:
    """``ForbiddenError`` unless the actor may do this."""
    if not actor.may(action, kind):
        if actor.binding is not None:
            raise ForbiddenError(
                f"a token of the {actor.binding.kind} {actor.binding.name} is for its streams alone"
            )
        needed = least(action, kind)
        raise ForbiddenError(f"{action} of {kind} needs the role {needed}; {actor.name} is {actor.role}")
