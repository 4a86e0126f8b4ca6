"""Tokens of the pickers that a runner starts: one per pool, good for its own stream alone.

Made when a pool comes, taken back when it goes, replaced when one does not hold any more. Everything here
blocks on the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from django.utils import timezone

from controlplane.core import tokens, users
from controlplane.core.models import ApiToken, User
from controlplane.core.roles import Actor, Binding, BoundTo, Channel, Role

USER: Final = "fleet-pickers"
ACTOR: Final = Actor("fleet", Role.ADMIN, Channel.AUTOMATION)
YOUNG: Final = timedelta(seconds=5)
"""A token of this age is left alone though it is not ours: where two runners share a database, which they
should not, each would replace the other's for ever."""


def renew(held: Mapping[str, str]) -> dict[str, str]:
    """Pool -> a token that holds: the one it has, or another. Those of pools that are not named are revoked.

    Pools without one are left out. While the user is locked, pools keep what they have. ``ServiceError`` when
    the user of this name is no worker.
    """
    user = User.objects.filter(username=USER).first() or users.put(ACTOR, USER, Role.WORKER)
    if not user.is_active:
        return {pool: text for pool, text in held.items() if text}
    rows = {row.name: row for row in tokens.tokens(ACTOR).filter(user=user)}
    for name in sorted(rows.keys() - held.keys()):
        tokens.revoke(ACTOR, user, name)
    found = {pool: _renewed(user, pool, rows.get(pool), text) for pool, text in held.items()}
    return {pool: text for pool, text in found.items() if text}


def _renewed(user: User, pool: str, row: ApiToken | None, text: str) -> str:
    if row is not None:
        if tokens.holds(row, text) or timezone.now() - row.created_at < YOUNG:
            return text
        tokens.revoke(ACTOR, user, pool)
    return tokens.issue(ACTOR, user, pool, binding=Binding(BoundTo.POOL, pool, pool)).text
