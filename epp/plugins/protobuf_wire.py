"""The wire format of protocol buffers, as far as a picker needs it: find a few fields of a message.

Nothing is copied and nothing is built for fields nobody asked for; offsets are those of the whole buffer, so
that an error names its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

_FIXED_SIZES: Final = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT_BYTES: Final = 10

MAX_FIELDS: Final = 65_536
"""Fields of one message that are walked through; nothing a picker reads has anywhere near as many."""


class WireError(ValueError):
    """The bytes are no message: what is wrong, and at which offset."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(f"{message} (offset {offset})")


Field = tuple[int, int, int, int]
"""Number, wire type, then the value of a varint and 0, or the offsets of start and end of the content."""


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message between two offsets, in order. ``WireError`` when it is none."""
    at, left = start, MAX_FIELDS
    while at < end:
        key_at = at
        left -= 1
        if left < 0:
            raise WireError(f"a message has more than {MAX_FIELDS} fields", key_at)
        key, at = _varint(data, at, end)
        number, wire_type = key >> 3, key & 7
        if number == 0:
            raise WireError("a field has number 0", key_at)
        if wire_type == VARINT:
            value, at = _varint(data, at, end)
            yield number, VARINT, value, 0
            continue
        if wire_type == BYTES:
            length, at = _varint(data, at, end)
        elif wire_type in _FIXED_SIZES:
            length = _FIXED_SIZES[wire_type]
        else:
            raise WireError(f"field {number} has wire type {wire_type}", key_at)
        if length > end - at:
            raise WireError(f"field {number} ends beyond its message", key_at)
        yield number, wire_type, at, at + length
        at += length


def uint32s(data: bytes, start: int, end: int) -> list[int]:
    """The packed varints between two offsets, each cut to 32 bits as the format demands."""
    packed = np.frombuffer(data, np.uint8, end - start, start)
    ends = np.flatnonzero(packed < 0x80)
    if len(packed) and (not len(ends) or ends[-1] != len(packed) - 1):
        raise WireError("a number is cut off", end)
    starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    sizes = ends - starts + 1
    longest = int(sizes.max(initial=0))
    if longest > _MAX_VARINT_BYTES:
        raise WireError("a number is too long", start + int(starts[sizes.argmax()]))
    values = np.zeros(len(ends), np.uint64)
    for k in range(min(longest, 5)):  # bits beyond 32 are cut off anyway
        there = sizes > k
        values[there] |= (packed[starts[there] + k] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * k)
    found: list[int] = (values & np.uint64(0xFFFF_FFFF)).tolist()
    return found


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number and the offset behind it."""
    value = shift = 0
    start = at
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if at - start == _MAX_VARINT_BYTES:
            raise WireError("a number is too long", start)
    raise WireError("a number is cut off", start)
