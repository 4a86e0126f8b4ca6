"""What parsers of several APIs have in common: token arrays, output limits, salts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import xxhash

from dataplane.errors import BadRequestError

MAX_TOKEN_ID: Final = (1 << 32) - 1


def output_limit(tokens: int | None) -> int | None:
    """A usable limit; engines give negative numbers meanings of their own."""
    return tokens if tokens is not None and tokens >= 0 else None


def check_tokens(tokens: Sequence[int], field: str) -> None:
    """``BadRequestError`` when a token id of ``field`` is none."""
    if tokens and (min(tokens) < 0 or max(tokens) > MAX_TOKEN_ID):
        raise BadRequestError(f"{field} has a token id outside 0 to {MAX_TOKEN_ID}", param=field)


def token_list_bytes(tokens: Sequence[int]) -> bytes:
    """Token ids as they appear in a batch: little-endian uint32."""
    return b"".join(t.to_bytes(4, "little") for t in tokens)


def salted(salt: str, media: bytes) -> str:
    """The salt of a prompt with media whose places are not known: other media, another prompt."""
    return f"{salt}/{xxhash.xxh3_64_hexdigest(media)}" if media else salt
