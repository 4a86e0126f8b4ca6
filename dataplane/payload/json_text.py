"""The lexis of JSON as bytes, for code that edits a text in place instead of writing it anew.

What is edited here has been read by a JSON decoder before, or will be judged by one later: these expressions
find their way through any valid text, and through an invalid one without failing.
"""

from __future__ import annotations

import json
import re
from typing import Final

import msgspec

STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
"""A whole string, quotes included. Quantifiers are possessive: no input makes them step back."""

_REST: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
"""A string from somewhere within it on, which is no place behind a backslash."""
MAX_QUOTES: Final = 8
"""Escaped quotes up to which looking for the next one is quicker than the expression."""

SPACE: Final = re.compile(rb"[ \t\r\n]*+")

FLAT: Final = rb'[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"'
"""A pattern of text without brackets, or a whole string."""

BETWEEN_BRACKETS: Final = re.compile(rb"(?:%b)*+" % FLAT, re.DOTALL)
"""Everything up to the next bracket, or to a string that is not whole."""


def string_end(body: bytes, at: int) -> int:
    """Where the string ends that begins at ``at``. ``ValueError`` when it does not end.

    As ``STRING`` has it, but quicker: most strings hold few quotes, or none.
    """
    begin = at + 1
    end = body.find(b'"', begin)
    for _ in range(MAX_QUOTES):
        if end < 0:
            break
        if body[end - 1] != 0x5C:
            return end + 1
        said = body[begin:end]
        if (len(said) - len(said.rstrip(b"\\"))) % 2 == 0:
            return end + 1
        begin, end = end + 1, body.find(b'"', end + 1)
    found = _REST.match(body, begin)
    if found is None:
        raise ValueError("a string has no end")
    return found.end()


def string(text: str) -> bytes:
    """A text as a JSON string; characters that UTF-8 cannot say are escaped."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return json.dumps(text).encode()


def says(token: bytes, text: str) -> bool:
    """Whether a whole string token, quotes included, says ``text``, however it is spelt."""
    if b"\\" not in token:
        return token[1:-1] == text.encode("utf-8", "surrogatepass")
    try:
        found: object = json.loads(token)
    except ValueError:
        return False
    return found == text
