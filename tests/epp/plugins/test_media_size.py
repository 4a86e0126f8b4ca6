"""Dimensions of images and length of clips from the first bytes of their files."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.plugins.media_size import image_size, wav_seconds

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 800, 600)
GIF = b"GIF89a" + struct.pack("<HH", 800, 600)
FRAME = b"\xff\xc2\0\x11\x08" + struct.pack(">HH", 600, 800)
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(9) + b"\xff\xc4\0\x04\0\0\xff" + FRAME
BMP = b"BM" + bytes(16) + struct.pack("<ii", 800, -600)
VP8 = b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 800 | 0x4000, 600)
VP8L = b"RIFF\0\0\0\0WEBPVP8L" + bytes(5) + struct.pack("<I", 799 | 599 << 14)
VP8X = b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + (799).to_bytes(3, "little") + (599).to_bytes(3, "little")
FILES = [PNG, GIF, JPEG, BMP, VP8, VP8L, VP8X]


@pytest.mark.parametrize("head", FILES, ids=["png", "gif", "jpeg", "bmp", "vp8", "vp8l", "vp8x"])
def test_dimensions_are_read(head: bytes):
    assert image_size(head) == (800, 600)
    assert image_size(head + b"more") == (800, 600)
    assert image_size(head[:-5]) is None


@pytest.mark.parametrize(
    "head", [b"", b"\xff\xd8", b"\xff\xd8\0\0", b"%PDF-1.7", b"RIFF\0\0\0\0WEBPVP9 " + bytes(9)]
)
def test_what_is_no_image_has_no_dimensions(head: bytes):
    assert image_size(head) is None


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (1 << 17, 5)])
def test_impossible_dimensions_are_none(size: tuple[int, int]):
    assert image_size(PNG[:16] + struct.pack(">II", *size)) is None


def test_a_jpeg_of_endless_segments_is_given_up():
    assert image_size(b"\xff\xd8" + b"\xff\xe0\0\x02" * 1000 + FRAME) is None


@given(st.sampled_from([*FILES, b""]), st.binary(max_size=64), st.integers(0, 64))
def test_any_bytes_are_survived(head: bytes, tail: bytes, cut: int):
    found = image_size(head[:cut] + tail)
    assert found is None or (0 < found[0] < 1 << 17 and 0 < found[1] < 1 << 17)
    assert wav_seconds(head[:cut] + tail, 100) >= 0.0


def wav(rate: int) -> bytes:
    return b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, rate, 2, 16) + b"data\0\0\0\0"


def test_the_length_of_a_wav_follows_from_its_rate():
    assert wav_seconds(wav(16_000), 44 + 32_000) == 2.0
    assert wav_seconds(wav(16_000), 10) == 0.0
    assert wav_seconds(wav(0), 1000) == 0.0
    assert wav_seconds(b"ID3" + bytes(60), 1000) == 0.0
    assert wav_seconds(wav(16_000)[:31], 1000) == 0.0
