"""Files that are text, given in base64 or as a data URL: what they say, and the same file with other words.

What a file is told to be is not believed: what decodes to text is text, since some model servers read it as
such whatever it calls itself. Pictures, sound and packed documents do not decode to text.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import urllib.parse
from typing import Final, NamedTuple

_NO_BASE64: Final = re.compile(r"[^A-Za-z0-9+/]+")
_LIKE_STANDARD: Final = str.maketrans("-_", "+/")
_SNIFFED: Final = 256
"""Characters of base64 that tell of most files what they are."""
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_TYPED: Final = re.compile(r"data:\s*text/", re.IGNORECASE)
_MAX_FOREIGN: Final = 0.1
"""Share of bytes that are no UTF-8 in what may still be text of another encoding."""


class TextFile(NamedTuple):
    """What a file says, and what it takes to say something else the same way."""

    words: str
    head: str
    """Of a data URL, up to its comma; empty where there is none."""
    is_base64: bool
    encoding: str

    def saying(self, words: str) -> str:
        """The file with other words."""
        data = words.encode(self.encoding, "replace")
        said = base64.b64encode(data).decode() if self.is_base64 else urllib.parse.quote_from_bytes(data)
        return self.head + said


def text_file(given: str, *, is_text: bool = False) -> TextFile | None:
    """The file that is given; None when it does not decode to text. ``is_text``: it is told to be text."""
    head, data, is_base64 = "", given, True
    if given[:5].lower() == "data:":
        before, comma, data = given.partition(",")
        head = before + comma
        is_base64 = ";base64" in before.lower().replace(" ", "")
        is_text = is_text or _TYPED.match(before) is not None
    if not is_base64:
        return _read(urllib.parse.unquote_to_bytes(data), head, is_base64=False, is_text=is_text)
    if not is_text and not _looks_like_text(_decoded(data[:_SNIFFED])):
        return None
    return _read(_decoded(data), head, is_base64=True, is_text=is_text)


def _decoded(data: str) -> bytes:
    """As lenient readers take it."""
    plain = _NO_BASE64.sub("", data.translate(_LIKE_STANDARD))
    plain = plain[: len(plain) - (len(plain) % 4 == 1)]
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4))
    except (binascii.Error, ValueError):
        return b""


def _looks_like_text(data: bytes) -> bool:
    """Of the beginning of a file."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return True
    return bool(data) and _CONTROL.search(data) is None


def _read(data: bytes, head: str, *, is_base64: bool, is_text: bool) -> TextFile | None:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return TextFile(data.decode("utf-16", "replace"), head, is_base64, "utf-16")
    if not is_text and not _looks_like_text(data):
        return None
    words = data.decode("utf-8", "replace")
    foreign = words.count("\ufffd")
    if not foreign:
        return TextFile(words, head, is_base64, "utf-8") if words else None
    if not is_text and foreign > len(data) * _MAX_FOREIGN:
        return None
    return TextFile(data.decode("latin-1"), head, is_base64, "latin-1")
