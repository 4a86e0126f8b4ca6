"""JSON as any client or server may spell it: white space, escapes, repeated keys; and what becomes of it.

Every text is drawn as a pair: the bytes, and the bytes with the wanted members replaced. The second is
written by the same hand as the first, knowing the structure, so it is right whatever a scanner believes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

OLD = 'm/"1"é😀'
NEW = "alias\n2"
PATHS = (("model",), ("response", "model"))

Pair = tuple[bytes, bytes]
Replace = Callable[[tuple[str, ...], bool], bool]
"""Whether the string at this path, which says ``OLD`` or does not, is replaced."""

keys = st.sampled_from(["model", "response", "message", "x", "model ", 'a"model', "", "é"])
texts = st.sampled_from([OLD, OLD, OLD, NEW, "", "model", f'"model":"{OLD}"', "\\", '\\"', "{[", OLD + "x"])
spaces = st.sampled_from([b"", b"", b"", b" ", b"\t", b"\r\n", b"  \n"])
scalars = st.sampled_from([b"null", b"true", b"-12.50e+3", b"0", b"1234567890123456789012"])


def replaced_at(path: tuple[str, ...], is_old: bool) -> bool:
    """The rule of ``PATHS``."""
    return is_old and path in PATHS


@st.composite
def spellings(draw: st.DrawFn, text: str) -> bytes:
    """One way to write a string."""
    units = json.dumps(text)[1:-1]
    style = draw(st.integers(0, 2))
    if style == 0:
        return json.dumps(text, ensure_ascii=False).encode()
    if style == 1:
        return b'"' + units.encode() + b'"'
    escaped = "".join(f"\\u{unit:04x}" for unit in _utf16(text))
    mask = draw(st.integers(0, 2 ** len(text) - 1)) if text.isascii() else -1
    if mask < 0:
        return f'"{escaped}"'.encode()
    spelt = [
        f"\\u{ord(char):04X}" if mask >> i & 1 else json.dumps(char)[1:-1] for i, char in enumerate(text)
    ]
    return f'"{"".join(spelt)}"'.encode()


def _utf16(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]


@st.composite
def values(
    draw: st.DrawFn, path: tuple[str, ...] = (), depth: int = 0, replace: Replace = replaced_at
) -> Pair:
    """A value at a path of keys; within a list a path leads nowhere."""
    kind = draw(st.integers(0, 5))
    if kind <= 1 or depth > 3:
        text = draw(texts)
        spelt = draw(spellings(text))
        return spelt, json.dumps(NEW).encode() if replace(path, text == OLD) else spelt
    if kind == 2:
        scalar = draw(scalars)
        return scalar, scalar
    if kind == 3:
        return draw(objects(path, depth + 1, replace))
    items = [draw(values((*path, "[]"), depth + 1, replace)) for _ in range(draw(st.integers(0, 3)))]
    return join(draw, b"[", items, b"]")


@st.composite
def objects(
    draw: st.DrawFn, path: tuple[str, ...] = (), depth: int = 0, replace: Replace = replaced_at
) -> Pair:
    """An object, perhaps with repeated keys."""
    items: list[Pair] = []
    for _ in range(draw(st.integers(0, 5 if depth else 7))):
        key = draw(keys)
        spelt = draw(spellings(key)) + draw(spaces) + b":" + draw(spaces)
        old, new = draw(values((*path, key), depth, replace))
        items.append((spelt + old, spelt + new))
    return join(draw, b"{", items, b"}")


def join(draw: Any, begin: bytes, items: list[Pair], end: bytes) -> Pair:
    old = new = begin + draw(spaces)
    for i, (before, after) in enumerate(items):
        comma = b"" if i == 0 else b"," + draw(spaces)
        space = draw(spaces)
        old, new = old + comma + before + space, new + comma + after + space
    return old + end, new + end


cuts = st.lists(st.integers(0, 1 << 30), max_size=12)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in chunks, empty ones among them."""
    at = sorted(place % (len(data) + 1) for place in places)
    return [data[start:stop] for start, stop in zip([0, *at], [*at, len(data)], strict=True)]
