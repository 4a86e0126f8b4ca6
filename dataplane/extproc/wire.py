"""The protobuf wire format by hand, for what every exchange sends and receives.

Reading covers the one layout in which Envoy writes header maps and bodies; anything else, broken bytes
included, raises ``Unusual`` or ``IndexError`` and is for the protobuf runtime to read. A header seen before
is one dictionary look-up: the dictionary starts over when it is full, and neither secrets nor headers that
never repeat are kept in it. Writing covers length-delimited fields whose key fits one byte.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from dataplane.headers import NEVER_REPEATED, SECRET_HEADERS

MAX_KNOWN_PAIRS: Final = 4096
_UNKEPT: Final = SECRET_HEADERS | NEVER_REPEATED

Pair = tuple[str, bytes]

_known_pairs: dict[bytes, Pair] = {}
"""Encoded map entry, key and length byte included, to what it says."""


class Unusual(Exception):
    """Bytes that are broken, or laid out as Envoy does not."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A length below 2**35 and where it ends."""
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise Unusual


def read_header_map(data: bytes, at: int, end: int) -> list[Pair]:
    """The headers of a ``HeaderMap`` that fills ``data[at:end]``."""
    pairs: list[Pair] = []
    append = pairs.append
    known = _known_pairs.get
    while at < end:
        stop = at + 2 + data[at + 1]
        pair = known(data[at:stop])
        if pair is None:
            pair, stop = _read_entry(data, at)
        append(pair)
        at = stop
    if at != end:
        raise Unusual
    return pairs


def _read_entry(data: bytes, at: int) -> tuple[Pair, int]:
    """One entry of the map, ``key`` and ``raw_value`` in this order, and where it ends."""
    size, start = data[at + 1], at + 2
    if size < 0x80 and data[start] == 0x0A:
        # All lengths in one byte, as in every header that is not huge.
        stop, name_end = start + size, start + 2 + data[start + 1]
        is_plain = data[name_end] == 0x1A and data[name_end + 1] == stop - name_end - 2
        if is_plain and data[at] == 0x0A and stop <= len(data):
            return _pair(data, at, start + 2, name_end, name_end + 2, stop), stop
    if size >= 0x80:
        size, start = read_varint(data, at + 1)
    stop = start + size
    size, name_at = read_varint(data, start + 1)
    name_end = name_at + size
    value_at = name_end
    if name_end != stop:
        size, value_at = read_varint(data, name_end + 1)
        if data[name_end] != 0x1A or value_at + size != stop:
            raise Unusual
    if data[at] != 0x0A or data[start] != 0x0A or stop > len(data):
        raise Unusual
    return _pair(data, at, name_at, name_end, value_at, stop), stop


def _pair(data: bytes, at: int, name_at: int, name_end: int, value_at: int, stop: int) -> Pair:
    """Name and value of the entry ``data[at:stop]``, kept if it may be."""
    try:
        pair = (data[name_at:name_end].decode(), data[value_at:stop])
    except UnicodeDecodeError:
        raise Unusual from None
    if stop - at < 0x82 and pair[0] not in _UNKEPT and b"?" not in pair[1]:  # a query can carry a key
        if len(_known_pairs) >= MAX_KNOWN_PAIRS:
            _known_pairs.clear()
        _known_pairs[data[at:stop]] = pair
    return pair


def encode_varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte, lowest first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field_head(tag: int, size: int) -> bytes:
    """What comes before the ``size`` bytes of a length-delimited field; ``tag`` is its key byte."""
    return _SHORT_HEADS[tag][size] if size < 0x80 else bytes((tag,)) + encode_varint(size)


def field(tag: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    size = len(payload)
    return (_SHORT_HEADS[tag][size] if size < 0x80 else field_head(tag, size)) + payload


def text_field(tag: int, text: str) -> bytes:
    """A string field. What UTF-8 cannot say, such as a quoted header value's bytes, becomes "?"."""
    return field(tag, text.encode("utf-8", "replace"))


@lru_cache(maxsize=1024)
def name_field(tag: int, name: str) -> bytes:
    """A string field with a header's name: few names, written often."""
    return text_field(tag, name)


_SHORT_HEADS: Final = {tag: tuple(bytes((tag, size)) for size in range(0x80)) for tag in range(0x02, 0x80, 8)}
"""Heads of the fields 1 to 15 with up to 127 bytes."""
