"""API tokens: made, shown once, recognised, and taken back.

A token is ``pmt_`` with a prefix that may be shown and a secret of 256 random bits. Only its SHA-256 is kept.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.core import audit
from controlplane.core.errors import ConflictError, MissingError
from controlplane.core.models import ApiToken, User
from controlplane.core.roles import Action, Actor, Channel, Role, require

KIND: Final = "ApiToken"
MARK: Final = "pmt_"
PREFIX_BYTES: Final = 6
SECRET_BYTES: Final = 32
MAX_TOKEN_CHARACTERS: Final = 128
USE_NOTED_EVERY: Final = timedelta(minutes=1)


class Issued(NamedTuple):
    """A new token; its text is known here and never again."""

    row: ApiToken
    text: str


def issue(actor: Actor, user: User, name: str, expires_at: datetime | None = None) -> Issued:
    """A new token for a user. ``ConflictError`` when the user has one of this name."""
    require(actor, Action.WRITE, KIND)
    prefix = secrets.token_hex(PREFIX_BYTES)
    text = f"{MARK}{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"
    row = ApiToken(user=user, name=name, prefix=prefix, digest=_digest(text), expires_at=expires_at)
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
        row = ApiToken.objects.filter(user=user, name=name).first()
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
    if row is None or not hmac.compare_digest(row.digest, _digest(text)):
        return None
    now = timezone.now()
    if (row.expires_at is not None and row.expires_at <= now) or not row.user.is_active:
        return None
    if row.last_used_at is None or now - row.last_used_at >= USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
    user = row.user
    return user, Actor(user.username, Role(user.role), channel, user.pk)


def describe(row: ApiToken) -> audit.Document:
    """A token as it is listed and audited."""
    return {
        "user": row.user.username,
        "name": row.name,
        "prefix": f"{MARK}{row.prefix}",
        "createdAt": _moment(row.created_at),
        "expiresAt": _moment(row.expires_at),
        "lastUsedAt": _moment(row.last_used_at),
    }


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
