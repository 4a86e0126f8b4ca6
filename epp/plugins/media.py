"""The images, audio clips, videos and files of a prompt, as parsers of JSON bodies find them.

In the prompt's text a medium is a digest of its address or data, so that the same medium gives the same text.
How many tokens it stands for is for a producer to say. The data themselves are not kept: what of them is of
use (kind, size, dimensions) is read from their first bytes.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Final

import xxhash

from epp.interfaces.request import MediaKind, Medium
from epp.plugins.media_size import image_size, wav_seconds

MAX_MEDIA: Final = 1024
"""Media of one prompt that are described; the text tells those beyond apart as well."""

_HEADS: Final = (4096, 131_072)
"""Base64 characters that are decoded: few at first, more when the dimensions are not among them, which
happens in photographs with a preview."""


class MediaParts:
    """Collects the media of one prompt while its text is written as a list of pieces."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: list[tuple[int, Medium]] = []

    def add(self, kind: MediaKind, reference: str, out: list[str], *, is_data: bool = False) -> None:
        """Write a medium's digest. ``reference`` is an address, or base64 data if ``is_data``."""
        digest = media_digest(reference)
        if len(self._marks) < MAX_MEDIA:
            medium = Medium(kind, digest)
            start = 0 if is_data else _data_start(reference)
            if start >= 0:
                _describe(medium, reference, start)
            self._marks.append((len(out), medium))
        out.append(digest)

    def rendered(self, out: Sequence[str], before: int) -> tuple[bytes, list[Medium] | None]:
        """The pieces as UTF-8, and the media with their places, counted from ``before`` bytes on."""
        pieces: list[bytes] = []
        offset, start = before, 0
        for index, medium in self._marks:
            pieces.append(encoded(out[start:index]))
            offset += len(pieces[-1])
            medium.offset = offset
            start = index
        pieces.append(encoded(out[start:]))
        return b"".join(pieces), [medium for _, medium in self._marks] or None


def media_digest(reference: str) -> str:
    """Sixteen hexadecimal digits for an address, data or a name of a medium."""
    digest: str = xxhash.xxh3_64_hexdigest(reference.encode("utf-8", "surrogatepass"))
    return digest


def encoded(pieces: Sequence[str]) -> bytes:
    """Joined, as UTF-8; halves of surrogate pairs survive."""
    return "".join(pieces).encode("utf-8", "surrogatepass")


def _data_start(reference: str) -> int:
    """Where the base64 data of a ``data:`` URI begin; -1 when it is another address."""
    if reference[:5].lower() != "data:":
        return -1
    comma = reference.find(",", 5, 256)
    return comma + 1 if comma > 0 and reference[comma - 7 : comma].lower() == ";base64" else -1


def _describe(medium: Medium, reference: str, start: int) -> None:
    padding = 2 if reference.endswith("==") else int(reference.endswith("="))
    medium.size = max(0, (len(reference) - start) * 3 // 4 - padding)
    if medium.kind is MediaKind.IMAGE:
        for chars in _HEADS:
            found = image_size(_decoded(reference, start, chars))
            if found is not None:
                medium.width, medium.height = found
            if found is not None or len(reference) - start <= chars:
                return
    elif medium.kind is MediaKind.AUDIO:
        medium.seconds = wav_seconds(_decoded(reference, start, 64), medium.size)


def _decoded(reference: str, start: int, chars: int) -> bytes:
    """The bytes of at most that many characters of base64; empty for what is none."""
    text = reference[start : start + chars]
    try:
        return binascii.a2b_base64(text[: len(text) & ~3])
    except (binascii.Error, ValueError):
        return b""
