"""How long the answer to a request may be, as far as the request says."""

from __future__ import annotations

from typing import Final

import msgspec

from dataplane.errors import RequestError
from ipp.interfaces.message import RequestMessage

LIMITS: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Members of bodies that say it; the first that is there counts."""
MAX_TOKENS: Final = 10_000_000
"""Larger limits are no promise anybody keeps, and count as this."""


def output_limit(request: RequestMessage) -> int:
    """The most tokens that the answer may have; 0 when the request does not say, or cannot be read."""
    try:
        members = request.members
    except RequestError:
        return 0
    for name in LIMITS:
        raw = members.get(name)
        if raw is None:
            continue
        value = msgspec.json.decode(raw)
        if isinstance(value, int) and not isinstance(value, bool):
            return min(max(value, 0), MAX_TOKENS)
    return 0
