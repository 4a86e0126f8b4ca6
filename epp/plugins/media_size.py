"""How large an image is and how long a clip lasts, from the first bytes of its file.

The bytes come from a client and may be anything: what cannot be read is unknown, and nothing is decoded.
"""

from __future__ import annotations

import struct
from typing import Final

_SOF: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers of a frame header, which has the dimensions."""

MAX_SEGMENTS: Final = 64
"""Segments of a JPEG that are looked at."""


def image_size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels of a PNG, GIF, JPEG, WebP or BMP file; None when ``head`` does not say."""
    try:
        if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
            return _sane(*struct.unpack_from(">II", head, 16))
        if head.startswith((b"GIF87a", b"GIF89a")):
            return _sane(*struct.unpack_from("<HH", head, 6))
        if head.startswith(b"\xff\xd8"):
            return _jpeg(head)
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return _webp(head)
        if head.startswith(b"BM"):
            width, height = struct.unpack_from("<ii", head, 18)
            return _sane(width, abs(height))
    except (struct.error, IndexError):
        return None
    return None


def wav_seconds(head: bytes, size: int) -> float:
    """Length of a PCM WAV file of ``size`` bytes; 0.0 when ``head`` is not the beginning of one."""
    if len(head) < 32 or head[:4] != b"RIFF" or head[8:16] != b"WAVEfmt ":
        return 0.0
    (rate,) = struct.unpack_from("<I", head, 28)
    return max(0, size - 44) / rate if rate else 0.0


def _sane(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if 0 < width < 1 << 17 and 0 < height < 1 << 17 else None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    at = 2
    for _ in range(MAX_SEGMENTS):
        while head[at] == 0xFF and head[at + 1] == 0xFF:
            at += 1
        marker = head[at + 1]
        if head[at] != 0xFF:
            return None
        if marker in _SOF:
            height, width = struct.unpack_from(">HH", head, at + 5)
            return _sane(width, height)
        (length,) = struct.unpack_from(">H", head, at + 2)
        at += 2 + length
    return None


def _webp(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return _sane(width & 0x3FFF, height & 0x3FFF)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return _sane((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8X" and len(head) >= 30:
        width = int.from_bytes(head[24:27], "little") + 1
        height = int.from_bytes(head[27:30], "little") + 1
        return _sane(width, height)
    return None
