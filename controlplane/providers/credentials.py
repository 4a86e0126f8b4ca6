"""The rules of provider credentials: a secret goes in and never comes out.

Documents, answers, exports and the audit log have a fingerprint instead: an HMAC under the installation's own
key, so that a short secret cannot be guessed from it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

import msgspec
from cryptography.fernet import InvalidToken, MultiFernet
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from controlplane.core import audit
from controlplane.core.errors import ConflictError
from controlplane.core.resources import Document, ResourceService
from controlplane.core.roles import ENCRYPTION_KEY, Action, Actor, require
from controlplane.providers import encryption
from controlplane.providers.models import ProviderCredential
from dataplane.config.providers import ProviderCredentialSpec
from dataplane.errors import ConfigError

log = logging.getLogger(__name__)

VERSIONS: Final = ("pointsman.dev/v1",)
CREDENTIAL: Final = "ProviderCredential"
FINGERPRINT_CHARACTERS: Final = 16


class CredentialService(ResourceService[ProviderCredential]):
    """ProviderCredentials."""

    kind = CREDENTIAL
    plural = "providercredentials"
    versions = VERSIONS
    spec_type = ProviderCredentialSpec
    model = ProviderCredential

    def check_change(
        self, row: ProviderCredential | None, spec: ProviderCredentialSpec, problems: list[ConfigError]
    ) -> None:
        """The secret is one of its type, and providers rely on the type."""
        if row is not None and row.type != spec.type:
            message = f"is {row.type} and stays; make another credential"
            problems.append(ConfigError(message, path="spec.type"))

    def assign(self, row: ProviderCredential, spec: ProviderCredentialSpec) -> None:
        """The spec; a secret that is not said stays as it is."""
        row.type = spec.type
        row.spec = msgspec.to_builtins(msgspec.structs.replace(spec, secret=None))
        if spec.secret is None:
            return
        cipher, mark = encryption.cipher(), fingerprint(spec.secret)
        if mark != row.fingerprint or not _is_readable(cipher, row.secret):
            row.secret = cipher.encrypt(spec.secret.encode()).decode()
            row.fingerprint, row.rotated_at = mark, timezone.now()

    def spec_of(self, row: ProviderCredential) -> Document:
        """As it was written, without the secret."""
        spec: Document = row.spec
        return spec

    def status_of(self, row: ProviderCredential) -> Document:
        """Whether there is a secret, which one, and since when."""
        status: Document = {"hasSecret": bool(row.secret)}
        if row.rotated_at is not None:
            status |= {"fingerprint": row.fingerprint, "lastRotatedAt": row.rotated_at.isoformat()}
        return status


def fingerprint(secret: str) -> str:
    """Tells secrets apart without telling them."""
    found: str = salted_hmac("controlplane.providers.secret", secret, algorithm="sha256").hexdigest()
    return found[:FINGERPRINT_CHARACTERS]


def secrets_of(names: Collection[str]) -> dict[str, str]:
    """Name -> secret, for whoever hands them to the data plane; without those that no key there is reads."""
    if not names:
        return {}
    cipher = encryption.cipher()
    rows = ProviderCredential.objects.filter(name__in=names).exclude(secret="")
    found: dict[str, str] = {}
    for row in rows:
        try:
            found[row.name] = cipher.decrypt(row.secret.encode()).decode()
        except InvalidToken:
            log.error("no key there is reads the secret of %s; it is left out", row.name)
    return found


def rotate_key(actor: Actor) -> int:
    """Encrypt all secrets with a new key, or with the first of those in the environment; returns how many.

    ``ConflictError`` when some cannot be read with the keys there are; then all stay as they are.
    """
    require(actor, Action.WRITE, ENCRYPTION_KEY)
    _require_readable(encryption.cipher())
    if encryption.is_given():
        return _encrypt_all(actor)
    held, fresh = encryption.keys(), encryption.draw()
    encryption.write([fresh, *held])  # from now on whoever writes uses the new key, and all can read both
    count = _encrypt_all(actor)
    encryption.write([fresh, held[0]])
    return count


def _require_readable(cipher: MultiFernet) -> None:
    rows = ProviderCredential.objects.exclude(secret="").order_by("name")
    names = [row.name for row in rows if not _is_readable(cipher, row.secret)]
    if names:
        raise ConflictError(
            f"no key there is reads the secrets of {', '.join(names)}; put the key back, or apply these "
            "credentials with their secrets anew"
        )


def _encrypt_all(actor: Actor) -> int:
    cipher = encryption.cipher()
    with transaction.atomic():
        rows = list(ProviderCredential.objects.select_for_update().exclude(secret="").order_by("name"))
        for row in rows:
            secret = cipher.rotate(row.secret.encode()).decode()
            ProviderCredential.objects.filter(pk=row.pk).update(secret=secret)
        audit.record(actor, "rotate", ENCRYPTION_KEY, "secrets", before=None, after={"secrets": len(rows)})
    return len(rows)


def _is_readable(cipher: MultiFernet, token: str) -> bool:
    try:
        cipher.decrypt(token.encode())
    except InvalidToken:
        return False
    return True
