"""The rules of tenants and virtual keys.

A key's text exists twice: in the answer that makes it, and with whoever got that answer. Here only its
SHA-256 and its beginning are kept. So a document cannot make a key unless it brings a digest; ``post`` draws
one.
Revoking is for ever, even when an older document is applied afterwards.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.core.errors import ConflictError, InvalidError
from controlplane.core.resources import Document, Reference, ResourceService
from controlplane.core.roles import Action, Actor, require
from controlplane.tenancy.models import Tenant, VirtualKey
from dataplane.config.tenancy import PreviousKey, TenantSpec, VirtualKeySpec
from dataplane.errors import ConfigError

VERSIONS: Final = ("pointsman.dev/v1",)
TENANT: Final = "Tenant"
VIRTUAL_KEY: Final = "VirtualKey"
OBJECTIVE_REFERENCE: Final = Reference("InferenceObjective", "objective", "spec.objective")

MARK: Final = "sk-pm-"
PREFIX_BYTES: Final = 6
SECRET_BYTES: Final = 32
MAX_GRACE: Final = timedelta(days=90)
MAX_USES: Final = 1000

_NEED_DIGEST: Final = (
    "is required: a document cannot carry a key. Make one with 'pointsman key create' or POST "
    "/api/v1/virtualkeys, which show it once, or give the SHA-256 of a key that exists, in hexadecimal"
)


class Issued(NamedTuple):
    """A new key; its text is known here and never again."""

    row: VirtualKey
    text: str


class Use(NamedTuple):
    """When a key was last used, as gateways report it."""

    key_digest: str
    at: datetime


class TenantService(ResourceService[Tenant]):
    """Tenants."""

    kind = TENANT
    plural = "tenants"
    versions = VERSIONS
    spec_type = TenantSpec
    model = Tenant
    references = (OBJECTIVE_REFERENCE,)

    def assign(self, row: Tenant, spec: TenantSpec) -> None:
        """The spec without what it does not say."""
        row.objective, row.spec = spec.objective or "", msgspec.to_builtins(spec)

    def spec_of(self, row: Tenant) -> Document:
        """As it was written, defaults left out."""
        spec: Document = row.spec
        return spec


class VirtualKeyService(ResourceService[VirtualKey]):
    """Virtual keys."""

    kind = VIRTUAL_KEY
    plural = "virtualkeys"
    versions = VERSIONS
    spec_type = VirtualKeySpec
    model = VirtualKey
    references = (Reference(TENANT, "tenant", "spec.tenant", required=True), OBJECTIVE_REFERENCE)

    def check_change(self, row: VirtualKey | None, spec: VirtualKeySpec, problems: list[ConfigError]) -> None:
        """A new key has a digest, nobody else's, and what is revoked stays so."""
        if row is None and spec.key_digest is None:
            problems.append(ConfigError(_NEED_DIGEST, path="spec.keyDigest"))
        if _is_taken(row, spec):
            problems.append(ConfigError("is another key's", path="spec.keyDigest"))
        revoked = None if row is None else _spec(row).revoked_at
        if revoked is not None and spec.revoked_at not in {None, revoked}:
            message = f"is {revoked.isoformat()} and stays; make a new key"
            problems.append(ConfigError(message, path="spec.revokedAt"))

    def assign(self, row: VirtualKey, spec: VirtualKeySpec) -> None:
        """The spec; what it does not say of the key itself stays as it is."""
        if row.pk is not None:
            held = _spec(row)
            if spec.key_digest is None:
                spec = msgspec.structs.replace(
                    spec, key_digest=held.key_digest, key_prefix=held.key_prefix, previous=held.previous
                )
            if spec.revoked_at is None:
                spec = msgspec.structs.replace(spec, revoked_at=held.revoked_at)
        row.tenant, row.objective = spec.tenant, spec.objective or ""
        row.digest, row.prefix = spec.key_digest or "", spec.key_prefix or ""
        row.previous_digest = None if spec.previous is None else spec.previous.key_digest
        row.spec = msgspec.to_builtins(spec)

    def spec_of(self, row: VirtualKey) -> Document:
        """As it was written, with the digest."""
        spec: Document = row.spec
        return spec

    def status_of(self, row: VirtualKey) -> Document:
        """Whether the key holds, and when it was last used."""
        used = row.last_used_at
        return {"state": state(_spec(row)), "lastUsedAt": None if used is None else used.isoformat()}

    def post(self, actor: Actor, document: Mapping[str, Any]) -> tuple[VirtualKey, Document]:
        """A new key; the document's ``status.key`` is its text, unless it was given by its digest."""
        require(actor, Action.WRITE, self.kind)
        wanted = self.judge(document)
        if wanted.spec.key_digest is not None:
            row = self.insert(actor, wanted)
            return row, self.document(row)
        if state(wanted.spec) != "active":
            raise InvalidError.of([ConfigError("is over; the key would never hold", path="spec.expiresAt")])
        text, prefix = draw()
        wanted.spec = msgspec.structs.replace(wanted.spec, key_digest=digest(text), key_prefix=prefix)
        row = self.insert(actor, wanted)
        return row, self.with_text(Issued(row, text))

    def with_text(self, issued: Issued) -> Document:
        """The document that shows a key this once."""
        shown = self.document(issued.row)
        return {**shown, "status": {**shown["status"], "key": issued.text}}

    def rotate(self, actor: Actor, name: str, grace: timedelta, version: int | None = None) -> Issued:
        """Another key in place of one, which holds for ``grace`` longer.

        ``ConflictError`` when the key does not hold, or when the one before it still does: without grace
        both end at once.
        """
        require(actor, Action.WRITE, self.kind)
        if not timedelta() <= grace <= MAX_GRACE:
            raise InvalidError.of([ConfigError(f"must be from 0 to {MAX_GRACE.days} days", path="grace")])
        text, prefix = draw()
        now = timezone.now()

        def renew(row: VirtualKey) -> None:
            spec = _spec(row)
            if (found := state(spec)) != "active":
                raise ConflictError(f"{VIRTUAL_KEY} {name} is {found}; make a new key")
            before = spec.previous
            if grace and before is not None and before.valid_until > now:
                raise ConflictError(
                    f"the key before the present one holds until {before.valid_until.isoformat()}; wait, or "
                    "rotate without grace, which ends both"
                )
            previous = None
            if grace and spec.key_digest is not None:
                previous = PreviousKey(
                    key_digest=spec.key_digest, key_prefix=spec.key_prefix, valid_until=now + grace
                )
            self.assign(
                row,
                msgspec.structs.replace(spec, key_digest=digest(text), key_prefix=prefix, previous=previous),
            )

        return Issued(self.change(actor, name, version, renew, action="rotate"), text)

    def revoke(self, actor: Actor, name: str, version: int | None = None) -> VirtualKey:
        """End a key, and the one before it, for ever. Revoking again changes nothing."""
        require(actor, Action.WRITE, self.kind)

        def end(row: VirtualKey) -> None:
            spec = _spec(row)
            if spec.revoked_at is None:
                self.assign(row, msgspec.structs.replace(spec, revoked_at=timezone.now()))

        return self.change(actor, name, version, end, action="revoke")

    def note_uses(self, actor: Actor, uses: Sequence[Use]) -> int:
        """Keep when keys were last used; returns how many keys that is news of.

        Reports may come twice and late: only a later moment changes anything, and none is later than now.
        No change of the configuration, so neither version nor audit log tell of it.
        """
        require(actor, Action.FOLLOW, self.kind)
        now = timezone.now()
        noted = 0
        with transaction.atomic():
            for use in sorted(uses):
                at = min(use.at, now)
                noted += (
                    VirtualKey.objects.filter(Q(digest=use.key_digest) | Q(previous_digest=use.key_digest))
                    .filter(Q(last_used_at=None) | Q(last_used_at__lt=at))
                    .update(last_used_at=at)
                )
        return noted


def state(spec: VirtualKeySpec) -> str:
    """``active``, ``expired`` or ``revoked``."""
    if spec.revoked_at is not None:
        return "revoked"
    return "expired" if spec.expires_at is not None and spec.expires_at <= timezone.now() else "active"


def draw() -> tuple[str, str]:
    """A new key's text, and its beginning, which may be shown."""
    prefix = f"{MARK}{secrets.token_hex(PREFIX_BYTES)}"
    return f"{prefix}-{secrets.token_urlsafe(SECRET_BYTES)}", prefix


def digest(text: str) -> str:
    """What is kept of a key's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _spec(row: VirtualKey) -> VirtualKeySpec:
    return msgspec.convert(row.spec, VirtualKeySpec)


def _is_taken(row: VirtualKey | None, spec: VirtualKeySpec) -> bool:
    """Whether another row holds one of the spec's digests."""
    mine = [spec.key_digest, None if spec.previous is None else spec.previous.key_digest]
    wanted = [digest for digest in mine if digest is not None]
    others = VirtualKey.objects.filter(Q(digest__in=wanted) | Q(previous_digest__in=wanted))
    return (others if row is None else others.exclude(pk=row.pk)).exists()
