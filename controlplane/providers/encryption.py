"""Secrets at rest: Fernet, with a key from the environment or from a file of the state folder.

The first key encrypts, all of them decrypt. The file is read for each use, since a rotation by another
process changes it; after a rotation it keeps the key before, for what somebody writes with it at that very
moment, and the next rotation drops that one.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings

from controlplane.core.errors import ServiceError

OWNER_ONLY: Final = stat.S_IRUSR | stat.S_IWUSR
MAX_KEYS: Final = 16


class EncryptionKeyError(ServiceError):
    """The keys of secrets cannot be used; nothing is read or written."""

    code = "encryption_key"
    status = 503


def cipher() -> MultiFernet:
    """Encrypts with the present key. ``EncryptionKeyError`` when the keys are no keys."""
    return _cipher(keys())


def keys() -> list[str]:
    """The present key and older ones; drawn at first use unless they are given."""
    given: list[str] = settings.ENCRYPTION_KEYS
    return given or _kept(settings.ENCRYPTION_KEYS_FILE)


def is_given() -> bool:
    """Whether the keys are the operator's own, in the environment."""
    return bool(settings.ENCRYPTION_KEYS)


def draw() -> str:
    """A new key."""
    return Fernet.generate_key().decode()


def write(wanted: list[str]) -> None:
    """Put keys into the file, all of them or none."""
    file: Path = settings.ENCRYPTION_KEYS_FILE
    os.replace(_written(file, wanted), file)


def _cipher(found: list[str]) -> MultiFernet:
    try:
        return MultiFernet([Fernet(key) for key in found])
    except ValueError:
        source = "POINTSMAN_ENCRYPTION_KEYS" if is_given() else str(settings.ENCRYPTION_KEYS_FILE)
        message = f"{source}: holds what is no key; a key is 32 bytes in URL-safe base64, as Fernet has them"
        raise EncryptionKeyError(message) from None


def _kept(file: Path) -> list[str]:
    if not file.exists():
        fresh = _written(file, [draw()])
        try:
            os.link(fresh, file)  # whoever is first makes it, whole
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    try:
        if stat.S_IMODE(file.stat().st_mode) & ~OWNER_ONLY:
            raise EncryptionKeyError(
                f"{file}: others may read it; make it the owner's alone: chmod 600 {file}"
            )
        found = file.read_text().split()[:MAX_KEYS]
    except (OSError, UnicodeDecodeError) as error:
        raise EncryptionKeyError(f"{file}: cannot be read: {error}") from None
    if not found:
        raise EncryptionKeyError(f"{file}: is empty; put the key back, or secrets cannot be read")
    return found


def _written(file: Path, wanted: list[str]) -> Path:
    """A new file beside the one that is meant."""
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with os.fdopen(descriptor, "w") as opened:
            opened.write("\n".join(wanted) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        raise EncryptionKeyError(f"{file}: cannot be written: {error.strerror}") from None
    return fresh
