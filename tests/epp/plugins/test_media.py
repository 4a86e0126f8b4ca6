"""Media of a prompt: described as far as their first bytes go, and told apart however many there are."""

import base64
import struct

from epp.interfaces.request import MediaKind, Medium
from epp.plugins.anthropic_body import parse_messages
from epp.plugins.media import MAX_MEDIA, MediaParts
from epp.plugins.openai_api import parse_chat

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 800, 600) + bytes(1000)
PHOTO = b"\xff\xd8\xff\xe1\xc0\x00" + bytes(0xC000 - 2) + b"\xff\xc0\0\x11\x08" + struct.pack(">HH", 600, 800)
WAV = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16_000, 2, 16) + bytes(32_008)


def described(kind: MediaKind, reference: str, *, is_data: bool = False) -> Medium:
    parts, out = MediaParts(), ["user\n"]
    parts.add(kind, reference, out, is_data=is_data)
    text, media = parts.rendered(out, 0)
    assert media is not None
    (medium,) = media
    assert text == b"user\n" + medium.digest.encode()
    return medium


def uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def test_an_image_in_the_request_has_size_and_dimensions():
    for data in (PNG, PHOTO):
        medium = described(MediaKind.IMAGE, uri(data))
        assert (medium.width, medium.height) == (800, 600)
        assert medium.size == len(data)
    plain = described(MediaKind.IMAGE, base64.b64encode(PNG).decode(), is_data=True)
    assert (plain.width, plain.height) == (800, 600)


def test_a_clip_in_the_request_has_its_length():
    clip = described(MediaKind.AUDIO, base64.b64encode(WAV).decode(), is_data=True)
    assert clip.seconds == 2.0
    assert described(MediaKind.AUDIO, uri(WAV, "audio/wav")).seconds == 2.0


def test_what_is_not_known_is_zero():
    for reference in (
        "http://x/a.png",
        "data:,AAAA",
        "data:image/png,AAAA",
        "data:image/png;base64",
        "\ud800",
    ):
        medium = described(MediaKind.IMAGE, reference)
        assert (medium.size, medium.width, medium.height) == (0, 0, 0)
    odd = described(MediaKind.IMAGE, "data:image/png;base64,****")
    assert (odd.size, odd.width, odd.height) == (3, 0, 0)
    assert described(MediaKind.IMAGE, uri(b"not an image" * 20_000)).width == 0
    assert described(MediaKind.VIDEO, uri(PNG, "video/mp4")).width == 0


def test_many_media_are_told_apart_but_not_all_described():
    count = MAX_MEDIA + 500
    videos = b",".join(b'{"video_url": "%d"}' % i for i in range(count))
    chat = parse_chat(b'{"model": "m", "messages": [{"role": "u", "content": [%b]}]}' % videos)
    assert len(chat.prompt_text) == len("u\n") + 16 * count
    assert chat.media is not None
    assert len(chat.media) == MAX_MEDIA
    images = b",".join(b'{"type": "image", "source": {"url": "%d"}}' % i for i in range(count))
    messages = parse_messages(b'{"model": "m", "messages": [{"role": "u", "content": [%b]}]}' % images)
    assert len(messages.prompt_text) == len("u\n") + 16 * count
    assert messages.media is not None
    assert len(messages.media) == MAX_MEDIA
