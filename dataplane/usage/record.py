"""One record per finished request, as workers write it and the control plane reads it.

The id makes delivery idempotent: a record may travel twice and counts once. Texts that clients choose are cut
and cleaned where the record is made, and judged again where it is read, because whoever can write to Valkey
can write anything.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Annotated, Final

import msgspec

STREAM: Final = "pointsman:usage"
"""The Valkey stream that carries records."""
FIELD: Final = b"r"
"""The one field of an entry: a record in JSON."""
MAX_TEXT: Final = 256
MAX_RECORD_BYTES: Final = 8192
"""Of a record in JSON; far above what the caps of its texts allow."""

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e7)]


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that was given an endpoint, and is over. Times in seconds; None = not known."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    at: Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]
    """When it was over, since the epoch."""
    pool: Text
    requested_model: Text = ""
    served_model: Text = ""
    """What the model server was asked for."""
    tenant: Text = ""
    """The flow the request was counted under (``x-gateway-inference-fairness-id``)."""
    objective: Text = ""
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] = 0
    """Of the model server; 0 = it never answered."""
    ending: Text = "natural"
    """natural, client-disconnect or error."""
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    streamed: bool = False
    duration_s: Seconds = 0.0
    ttft_s: Seconds | None = None
    revision: Text = ""
    """Of the configuration that decided."""


class RecordIds:
    """Ids in order of time: milliseconds, a number, and what tells this process from all others."""

    def __init__(self, clock_ms: Callable[[], int] | None = None, unique: str | None = None) -> None:
        self._clock_ms = clock_ms or _now_ms
        self._unique = secrets.token_hex(7) if unique is None else unique
        self._number = 0

    def __call__(self) -> str:
        """Thirty-two hexadecimal digits."""
        self._number = (self._number + 1) & 0xFFFFFF
        return f"{self._clock_ms() & 0xFFFFFFFFFFFF:012x}{self._number:06x}{self._unique}"


def clean(text: str) -> str:
    """A client's text, cut to what a record holds and without what databases refuse."""
    text = text[:MAX_TEXT]
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
