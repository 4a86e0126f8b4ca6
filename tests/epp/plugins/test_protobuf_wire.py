"""Fields are found where protobuf puts them, and what is no message is refused with its place."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.plugins import protobuf_wire
from epp.plugins.protobuf_wire import BYTES, FIXED32, FIXED64, VARINT, WireError, fields, uint32s


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the highest bit says that more follow."""
    head = []
    while number >= 0x80:
        head.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*head, number])


def refusal(data: bytes) -> str:
    with pytest.raises(WireError) as caught:
        list(fields(data, 0, len(data)))
    return str(caught.value)


def test_fields_of_all_kinds_are_found():
    data = b"\x08\x96\x01" + b"\x12\x03abc" + b"\x1d1234" + b"\x2112345678" + b"\x82\x01\x00"
    assert list(fields(data, 0, len(data))) == [
        (1, VARINT, 150, 0),
        (2, BYTES, 5, 8),
        (3, FIXED32, 9, 13),
        (4, FIXED64, 14, 22),
        (16, BYTES, 25, 25),
    ]
    assert list(fields(data, 3, 8)) == [(2, BYTES, 5, 8)]
    assert list(fields(b"", 0, 0)) == []


def test_negative_numbers_are_cut_to_64_bits():
    data = b"\x08" + b"\xff" * 9 + b"\x7f"
    assert list(fields(data, 0, len(data))) == [(1, VARINT, (1 << 64) - 1, 0)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x00", "a field has number 0 (offset 0)"),
        (b"\x08\x01\x08", "a number is cut off (offset 3)"),
        (b"\x08\x80", "a number is cut off (offset 1)"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "a number is too long (offset 1)"),
        (b"\x08\x01\x12\x05abc", "field 2 ends beyond its message (offset 2)"),
        (b"\x1d123", "field 3 ends beyond its message (offset 0)"),
        (b"\x0b", "field 1 has wire type 3 (offset 0)"),
        (b"\x0f", "field 1 has wire type 7 (offset 0)"),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(data: bytes, message: str):
    assert refusal(data) == message


def test_a_message_of_endlessly_many_fields_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protobuf_wire, "MAX_FIELDS", 3)
    assert len(list(fields(b"\x08\x00" * 3, 0, 6))) == 3
    assert refusal(b"\x08\x00" * 4) == "a message has more than 3 fields (offset 6)"


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=40), st.binary(max_size=5), st.binary(max_size=5))
def test_packed_numbers_are_read_as_they_were_written(numbers: list[int], before: bytes, after: bytes):
    packed = b"".join(map(varint, numbers))
    data = before + packed + after
    assert uint32s(data, len(before), len(before) + len(packed)) == [n & 0xFFFF_FFFF for n in numbers]


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (b"\x01\x80", "a number is cut off (offset 4)"),
        (b"\x80", "a number is cut off (offset 3)"),
        (b"\x01" + b"\x80" * 10 + b"\x01", "a number is too long (offset 3)"),
    ],
)
def test_broken_packed_numbers_are_refused_with_their_place(packed: bytes, message: str):
    with pytest.raises(WireError) as caught:
        uint32s(b"xx" + packed + b"\x05", 2, 2 + len(packed))
    assert str(caught.value) == message


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes):
    with contextlib.suppress(WireError):
        assert all(number > 0 for number, *_ in fields(data, 0, len(data)))
    with contextlib.suppress(WireError):
        assert len(uint32s(data, 0, len(data))) <= len(data)
