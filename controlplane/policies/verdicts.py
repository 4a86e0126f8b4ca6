"""Verdicts of guardrails, as payload processors tell them through Valkey: the newest that are still there."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controlplane import valkey
from dataplane.verdicts import FIELD, STREAM, VerdictRecord

log = logging.getLogger(__name__)

MOST: Final = 500
"""Told at a time."""
LOOKED_AT: Final = 20_000
"""Entries that are looked at for so many, newest first."""
BATCH: Final = 1000
MAX_BYTES: Final = 16 << 10
"""Of one entry; a longer one is nobody's."""
FILTERS: Final = ("policy", "rule", "tenant", "model", "stage", "action", "request_id")
"""Fields by which verdicts are chosen."""

_decode = msgspec.json.Decoder(VerdictRecord).decode


def newest(limit: int, wanted: Mapping[str, str]) -> list[VerdictRecord] | None:
    """Verdicts whose fields are as wanted, newest first; None when no Valkey is named.

    Nothing while Valkey is away: verdicts are for looking at, and processors count them all.
    """
    if not valkey.is_configured():
        return None
    found: list[VerdictRecord] = []
    try:
        with valkey.client() as client:
            before, looked_at = "+", 0
            while looked_at < LOOKED_AT and len(found) < limit:
                entries: Any = client.xrevrange(STREAM, max=before, min="-", count=BATCH)
                if not entries:
                    break
                for _, fields in entries:
                    record = _read(fields.get(FIELD.encode()))
                    if record is not None and all(getattr(record, n) == v for n, v in wanted.items()):
                        found.append(record)
                looked_at += len(entries)
                before = f"({entries[-1][0].decode()}"
    except valkey.Unavailable as error:
        log.warning("verdicts cannot be read: %s", error)
    return found[:limit]


def _read(raw: bytes | None) -> VerdictRecord | None:
    """An entry; None for what is none, since whoever can write to Valkey can write anything."""
    if raw is None or len(raw) > MAX_BYTES:
        return None
    try:
        return _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
