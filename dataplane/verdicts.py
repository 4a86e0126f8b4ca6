"""What a payload processor tells of a guardrail's verdict: one entry of a Valkey stream."""

from __future__ import annotations

from typing import Final

import msgspec

STREAM: Final = "pointsman:verdicts"
FIELD: Final = "verdict"
MAX_ENTRIES: Final = 100_000
"""Newest entries that the stream keeps."""


class VerdictRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where something was and of which kind; never what."""

    at: float
    """Seconds since the epoch."""
    processor: str
    request_id: str = ""
    tenant: str = ""
    model: str = ""
    pool: str = ""
    """The one that serves the model, as policies see it."""
    policy: str
    rule: str
    type: str
    kind: str
    stage: str
    action: str
    path: str = ""
    start: int = 0
    end: int = 0
    score: float = 1.0
    latency_us: int = 0
