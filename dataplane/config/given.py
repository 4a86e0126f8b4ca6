"""Configurations that a control plane sends: what a set means.

The control plane names a document, a revision's number and the digest of its text; so does everything that
shows which configuration decided something.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import msgspec

from dataplane.errors import ConfigError

SHOWN_CHARACTERS: Final = 12
"""Of a digest."""


class Given(NamedTuple):
    """A configuration's text, and what it is called."""

    text: bytes
    revision: str
    """``DOCUMENT/NUMBER@DIGEST``."""


class _Set(msgspec.Struct):
    content: msgspec.Raw
    digest: str
    document: str
    revision: int


def read_set(payload: bytes) -> Given:
    """The configuration in what was sent. ``ConfigError`` when there is none in it."""
    try:
        found = msgspec.json.decode(payload, type=_Set)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"is no configuration of a control plane: {error}") from None
    text = bytes(found.content)
    if hashlib.sha256(text).hexdigest() != found.digest:
        raise ConfigError("is not the text of the digest", path="content")
    return Given(text, f"{found.document}/{found.revision}@{found.digest[:SHOWN_CHARACTERS]}")
