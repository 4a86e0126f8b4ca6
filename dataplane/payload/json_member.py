"""Set one member of a JSON object without touching any other byte of it.

Order of keys, spelling of numbers, white space and unknown members stay as the client wrote them, which no
decoding and encoding again would keep. The text has been decoded before; this finds where a value stands.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from dataplane.payload.json_text import FLAT, SPACE, STRING, says, string

MAX_REPEATS: Final = 100
"""Members of one name that are set; a text with more of them is made to keep us busy."""

_TO_KEY: Final = re.compile(rb"[ \t\r\n,]*+")
_COLON: Final = re.compile(rb"[ \t\r\n]*+:[ \t\r\n]*+")
_SCALAR: Final = re.compile(rb'[^ \t\r\n,}\]"]++')


def _with_brackets(inner: bytes) -> bytes:
    """``inner``, or any number of it in brackets."""
    return rb"%b|\{(?:%b)*+\}|\[(?:%b)*+\]" % (inner, inner, inner)


_WITHIN: Final = re.compile(rb"(?:%b)*+" % _with_brackets(_with_brackets(FLAT)), re.DOTALL)
"""Everything up to the next bracket, or to a string that is not whole; brackets that hold no more than one
level of others are gone over in this one step, which is several times as fast."""


def set_member(text: bytes, name: str, value: str, *, is_string: bool = False) -> bytes:
    """The object ``text`` with its member ``name``, in ASCII letters, set to the string ``value``.

    Of several members with this name all are set, since readers differ in which they believe; without one,
    it becomes the first. ``is_string`` says that a decoder has found a string there, which spares going over
    the whole text. ``ValueError`` when the text is no object, with the offset where it stops being one, or
    has more than ``MAX_REPEATS`` such members.
    """
    start = _after_space(text, 0)
    if text[start : start + 1] != b"{":
        raise ValueError(f"not a JSON object (offset {start})")
    new = string(value)
    span = _only_occurrence(text, name) if is_string else None
    spans = _find(text, start + 1, name) if span is None else [span]
    if not spans:
        rest = _after_space(text, start + 1)
        comma = b"" if text[rest : rest + 1] == b"}" else b","
        return b"".join((text[: start + 1], string(name), b":", new, comma, text[start + 1 :]))
    pieces: list[bytes] = []
    at = 0
    for begin, end in spans:
        pieces += (text[at:begin], new)
        at = end
    pieces.append(text[at:])
    return b"".join(pieces)


def _only_occurrence(text: bytes, name: str) -> tuple[int, int] | None:
    """Where the value stands if there is one place in the whole text that can be the key; else None."""
    key = string(name)
    at = text.rfind(key)  # three times as fast as a search from the left
    if at < 0 or _can_hold_key(text, name, 0, at) or _can_hold_key(text, name, at + 1, len(text)):
        return None
    colon = _COLON.match(text, at + len(key))
    value = None if colon is None else STRING.match(text, colon.end())
    return None if value is None else value.span()


def _can_hold_key(text: bytes, name: str, at: int, end: int) -> bool:
    """Whether a place in ``text[at:end]`` looks like a key with this name, in any spelling."""
    if text.rfind(string(name), at, end) >= 0:
        return True
    has_escapes = text.find(b"\\", at, end) >= 0
    return has_escapes and any(text.rfind(part, at, end) >= 0 for part in _escapes(name))


@lru_cache(maxsize=16)
def _escapes(name: str) -> tuple[bytes, ...]:
    """What any other spelling of an ASCII name has in it."""
    return tuple({b"\\u00%x" % (ord(char) >> 4) for char in name})


def _find(text: bytes, at: int, name: str) -> list[tuple[int, int]]:
    """Where the values of the members with this name stand; ``at`` is behind the opening brace."""
    spans: list[tuple[int, int]] = []
    while True:
        key = STRING.match(text, _TO_KEY.match(text, at).end())  # type: ignore[union-attr]  # matches anything
        if key is None:
            return spans
        colon = _COLON.match(text, key.end())
        if colon is None:
            raise ValueError(f"not a JSON object (offset {key.end()})")
        at = _end_of_value(text, colon.end())
        if says(key[0], name):
            spans.append((colon.end(), at))
            if len(spans) > MAX_REPEATS:
                raise ValueError(f"more than {MAX_REPEATS} members are named '{name}'")
            if not _can_hold_key(text, name, at, len(text)):
                return spans


def _end_of_value(text: bytes, at: int) -> int:
    found = STRING.match(text, at) or _SCALAR.match(text, at)
    if found is None:
        raise ValueError(f"not a JSON object (offset {at})")
    if text[at] not in b"{[":
        return found.end()
    depth, at = 1, at + 1
    while depth:
        at = _WITHIN.match(text, at).end()  # type: ignore[union-attr]  # matches anything
        if at >= len(text) or text[at] == 0x22:
            raise ValueError(f"not a JSON object (offset {at})")
        depth += 1 if text[at] in b"{[" else -1
        at += 1
    return at


def _after_space(text: bytes, at: int) -> int:
    return SPACE.match(text, at).end()  # type: ignore[union-attr]  # matches anything
