"""API tokens: made, shown once, recognised, and taken back.

A token is ``pmt_`` with a prefix that may be shown and a secret of 256 random bits. Only its SHA-256 is kept.
A worker's token may be bound to a pool or a gateway, and to one node of it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.db import IntegrityError, transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from controlplane.core import audit, users
from controlplane.core.errors import ConflictError, InvalidError, MissingError
from controlplane.core.models import ApiToken, AuditEntry, User
from controlplane.core.resources import is_storable
from controlplane.core.roles import Action, Actor, Binding, BoundTo, Channel, Role, require
from dataplane.errors import ConfigError
from epp.objects.schema import check_name

KIND: Final = "ApiToken"
MARK: Final = "pmt_"
PREFIX_BYTES: Final = 6
SECRET_BYTES: Final = 32
MAX_TOKEN_CHARACTERS: Final = 128
NODE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,253}", re.ASCII)
"""What nodes may be called."""
USE_NOTED_EVERY: Final = timedelta(minutes=1)


class Issued(NamedTuple):
    """A new token; its text is known here and never again."""

    row: ApiToken
    text: str


def issue(
    actor: Actor,
    user: User,
    name: str,
    expires_at: datetime | None = None,
    binding: Binding | None = None,
) -> Issued:
    """A new token for a user. ``ConflictError`` when the user has one of this name."""
    require(actor, Action.WRITE, KIND)
    _check(user, name, binding)
    prefix = secrets.token_hex(PREFIX_BYTES)
    text = f"{MARK}{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"
    row = ApiToken(user=user, name=name, prefix=prefix, digest=_digest(text), expires_at=expires_at)
    if binding is not None:
        row.bound_to, row.bound_name, row.bound_node = binding
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            audit.record(actor, "create", KIND, f"{user.username}/{name}", before=None, after=describe(row))
    except IntegrityError:
        raise ConflictError(f"{user.username} has a token {name} already") from None
    return Issued(row, text)


def revoke(actor: Actor, user: User, name: str) -> None:
    """Take a token back; it is not recognised from now on."""
    require(actor, Action.WRITE, KIND)
    with transaction.atomic():
        row = ApiToken.objects.filter(user=user, name=name).first() if is_storable(name) else None
        if row is None:
            raise MissingError(f"{user.username} has no token {name}")
        before = describe(row)
        row.delete()
        audit.record(actor, "delete", KIND, f"{user.username}/{name}", before=before, after=None)


def tokens(actor: Actor) -> QuerySet[ApiToken]:
    """All tokens, without their secrets."""
    require(actor, Action.READ, KIND)
    return ApiToken.objects.select_related("user").order_by("user__username", "name")


def recognise(text: str, channel: Channel) -> tuple[User, Actor] | None:
    """Whose token this is; None when it is nobody's, or its time is over, or its user may not log in."""
    if len(text) > MAX_TOKEN_CHARACTERS or not text.startswith(MARK):
        return None
    prefix = text[len(MARK) :].partition("_")[0]
    row = ApiToken.objects.select_related("user").filter(prefix=prefix).first()
    if row is None or not holds(row, text) or not row.user.is_active:
        return None
    now = timezone.now()
    if row.last_used_at is None or now - row.last_used_at >= USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
    user = row.user
    return user, Actor(user.username, Role(user.role), channel, user.pk, binding_of(row))


def holds(row: ApiToken, text: str) -> bool:
    """Whether this is the token's text, and its time is not over."""
    is_over = row.expires_at is not None and row.expires_at <= timezone.now()
    return hmac.compare_digest(row.digest, _digest(text)) and not is_over


def binding_of(row: ApiToken) -> Binding | None:
    """What a token is bound to."""
    return Binding(BoundTo(row.bound_to), row.bound_name, row.bound_node) if row.bound_to else None


def last_change() -> int:
    """A number that rises whenever a token may have ceased to hold before its time."""
    entries = AuditEntry.objects.filter(kind__in=(KIND, users.KIND)).order_by()
    return int(entries.aggregate(last=Max("pk"))["last"] or 0)


def describe(row: ApiToken) -> audit.Document:
    """A token as it is listed and audited."""
    binding = binding_of(row)
    bound = {} if binding is None else {str(binding.kind): binding.name}
    if binding is not None and binding.node:
        bound["node"] = binding.node
    return {
        "user": row.user.username,
        "name": row.name,
        "prefix": f"{MARK}{row.prefix}",
        "createdAt": _moment(row.created_at),
        "expiresAt": _moment(row.expires_at),
        "lastUsedAt": _moment(row.last_used_at),
        "binding": None if binding is None else bound,
    }


def _check(user: User, name: str, binding: Binding | None) -> None:
    """``InvalidError`` for names that are none, and for people's tokens that are bound."""
    problems: list[ConfigError] = []
    named = {"name": name} if binding is None else {"name": name, f"binding.{binding.kind}": binding.name}
    for path, text in named.items():
        try:
            check_name(text, path)
        except ConfigError as error:
            problems.append(error)
    if binding is not None and binding.node and not NODE_ID.fullmatch(binding.node):
        problems.append(ConfigError("must be letters, digits and . _ : -, at most 253", path="binding.node"))
    if binding is not None and user.role != Role.WORKER:
        problems.append(
            ConfigError(f"is for tokens of workers; {user.username} is {user.role}", path="binding")
        )
    if problems:
        raise InvalidError.of(problems)


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
