"""Configurations that a control plane sends: what a set means, and the last one that is on disk.

The control plane names a document, a revision's number and the digest of its text; so does everything that
shows which configuration decided something.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Final, NamedTuple

import msgspec

from dataplane.errors import ConfigError
from epp.options import EppOptions

log = logging.getLogger(__name__)

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


def kept_configuration(options: EppOptions) -> Given | None:
    """The last good one on disk, if there is any. Blocks; why there is none is told when objects are read."""
    if not options.xds_cache:
        return None
    # Only here: the protocol's messages come with it.
    from dataplane.xds.codec import unwrapped
    from dataplane.xds.messages import PICKER_CONFIG
    from dataplane.xds.store import Store

    try:
        held = Store(options.xds_cache, options.pool_name).load().get(PICKER_CONFIG)
        named = [] if held is None else [each for each in held.resources if each.name == options.pool_name]
        return read_set(unwrapped(named[0].value)) if named else None
    except ConfigError as error:
        log.warning("starting without the last configuration of the control plane: %s", error)
        return None
