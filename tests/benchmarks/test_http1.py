"""Message boundaries: any split of the bytes gives the same messages."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.http1 import HEAD_LIMIT_BYTES, Message, MessageReader, ProtocolError

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nserver: envoy\r\n\r\nhello"
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked"
CHUNKED = CHUNKED_HEAD + b"\r\n\r\n5\r\nhello\r\n10;x=y\r\n0123456789abcdef\r\n0\r\n\r\n"
BODILESS = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n"
MESSAGES = [
    Message(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nserver: envoy", 5),
    Message(CHUNKED_HEAD, 21),
    Message(b"GET /metrics HTTP/1.1\r\nhost: a", 0),
    Message(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nserver: envoy", 5),
]
STREAM = ANSWER + CHUNKED + BODILESS + ANSWER


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_split_gives_the_same_messages(cuts: list[int]):
    edges = [0, *sorted(cuts), len(STREAM)]
    reader = MessageReader()
    found = []
    for start, end in itertools.pairwise(edges):
        found += reader.feed(STREAM[start:end])
    assert found == MESSAGES
    assert reader.payload_bytes == 31


def test_byte_by_byte():
    reader = MessageReader()
    assert [message for byte in STREAM for message in reader.feed(bytes([byte]))] == MESSAGES


def test_payload_of_an_unfinished_message_counts():
    reader = MessageReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n8\r\nabc") == []
    assert reader.payload_bytes == 8


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", "content-length is not a number: b'x'"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "content-length is not a number: b'-1'"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "chunk size is not a hexadecimal"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: b\r\n\r\n",
            "trailers are not expected",
        ),
        (b"x" * (HEAD_LIMIT_BYTES + 1), "head longer than 65536 bytes"),
    ],
    ids=["length-text", "length-negative", "chunk-size", "trailers", "endless-head"],
)
def test_what_envoy_does_not_send_is_refused(data: bytes, complaint: str):
    with pytest.raises(ProtocolError, match=complaint):
        MessageReader().feed(data)
