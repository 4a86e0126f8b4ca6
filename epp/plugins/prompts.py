"""What parsers of several APIs have in common: token arrays, output limits, stand-ins for media."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import xxhash

from dataplane.errors import BadRequestError

MAX_TOKEN_ID: Final = (1 << 32) - 1

IMAGE_TOKENS: Final = 225
"""Tokens an image stands for: 640 x 360 pixels, 1024 to a token."""
AUDIO_TOKENS: Final = 250
"""Tokens a piece of audio stands for: ten seconds, 25 tokens each."""
VIDEO_TOKENS: Final = 20 * IMAGE_TOKENS
"""Tokens a video stands for: ten seconds, two frames each."""

MAX_MEDIA_TOKENS: Final = 1 << 20
"""Tokens the media of one prompt stand for together; more than a model's context holds."""

_DIGEST_TOKENS: Final = 4
"""Pseudo-tokens of four bytes in a digest of 16 hexadecimal digits."""


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


class MediaText:
    """Makes the texts that stand for the media of one prompt.

    A medium of a few bytes stands for thousands of tokens, so there is a limit to all of them together; media
    beyond it are told apart as well, by texts of a few tokens.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_MEDIA_TOKENS

    def stand_in(self, reference: str, tokens: int) -> str:
        """Text of about that many tokens for a medium, the same for the same reference."""
        digest: str = xxhash.xxh3_64_hexdigest(reference.encode("utf-8", "surrogatepass"))
        if tokens > self._left:
            return digest
        self._left -= tokens
        return digest * (tokens // _DIGEST_TOKENS)


def salted(salt: str, media: bytes) -> str:
    """The salt of a prompt with media whose places are not known: other media, another prompt."""
    return f"{salt}/{xxhash.xxh3_64_hexdigest(media)}" if media else salt
