"""gRPC messages come out whole however they are cut; what cannot be read has the right status."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.extproc.http2 import ErrorCode, Limits
from dataplane.extproc.http2.errors import MessageFault
from dataplane.extproc.http2.messages import MessageBuffer, decoded
from tests.dataplane.extproc.http2_client import (
    DATA,
    END_STREAM,
    PADDED,
    Echo,
    Peer,
    frame,
    message,
    request,
    reset_codes,
    status_of,
)


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_any_cut_gives_the_same_messages(bodies: list[bytes], data: st.DataObject):
    stream = b"".join(message(body) for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    buffer = MessageBuffer(40)
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += buffer.feed(stream[start:stop])
    assert found == [(0, body) for body in bodies]
    assert buffer.is_empty
    assert buffer.held == 0


def test_held_counts_the_bytes_of_the_unfinished_message():
    buffer = MessageBuffer(100)
    assert list(buffer.feed(message(b"abc") + b"\0\0")) == [(0, b"abc")]
    assert (buffer.held, buffer.is_empty) == (2, False)
    assert list(buffer.feed(b"\0\0\x0a12345")) == []
    assert (buffer.held, buffer.is_empty) == (5, False)
    assert list(buffer.feed(b"67890")) == [(0, b"1234567890")]
    assert (buffer.held, buffer.is_empty) == (0, True)


def test_message_of_the_largest_size_passes_and_one_byte_more_does_not():
    assert list(MessageBuffer(5).feed(message(b"12345"))) == [(0, b"12345")]
    with pytest.raises(MessageFault, match="message of 6 bytes is larger than 5") as caught:
        list(MessageBuffer(5).feed(message(b"123456")[:5]))
    assert caught.value.status == 8


def test_gzip_is_decoded_up_to_the_limit():
    assert decoded(1, gzip.compress(b"hello"), b"gzip", 5) == b"hello"
    assert decoded(1, gzip.compress(b""), b"gzip", 0) == b""


@pytest.mark.parametrize(
    ("flag", "body", "encoding", "status", "reason"),
    [
        (1, gzip.compress(bytes(1000)), b"gzip", 8, "larger than 999 bytes once decompressed"),
        (1, gzip.compress(bytes(500)) * 2, b"gzip", 13, "not one whole member"),
        (1, gzip.compress(b"hello")[:-1], b"gzip", 13, "not one whole member"),
        (1, b"", b"gzip", 13, "not one whole member"),
        (1, b"not gzip", b"gzip", 13, "gzip: "),
        (1, gzip.compress(b"hello") + b"rest", b"gzip", 13, "not one whole member"),
        (1, b"x", b"", 13, "without grpc-encoding"),
        (1, b"x", b"identity", 13, "without grpc-encoding"),
        (1, zlib.compress(b"x"), b"deflate", 12, "deflate is not supported; use identity or gzip"),
        (2, b"x", b"gzip", 13, "flag 2"),
    ],
    ids=["bomb", "two members", "cut", "empty", "noise", "trailing", "none", "identity", "deflate", "flag"],
)
def test_message_that_cannot_be_decoded(flag: int, body: bytes, encoding: bytes, status: int, reason: str):
    with pytest.raises(MessageFault, match=reason) as caught:
        decoded(flag, body, encoding, 999)
    assert caught.value.status == status


def test_decompression_bomb_is_stopped_at_the_limit():
    bomb = gzip.compress(bytes(20_000_000))
    with pytest.raises(MessageFault, match="larger than 1000 bytes"):
        decoded(1, bomb, b"gzip", 1000)


def test_messages_share_and_span_frames():
    peer = Peer()
    peer.feed(request(1))
    whole = message(b"first") + message(b"") + message(b"third" * 10)
    for cut in range(len(whole) + 1):
        peer.events.clear()
        assert peer.feed(frame(DATA, 0, 1, whole[:cut]), frame(DATA, 0, 1, whole[cut:])) == []
        assert peer.events == [("message", 1, b"first"), ("message", 1, b""), ("message", 1, b"third" * 10)]
        assert peer.connection.reassembly_bytes == 0


def test_padding_is_not_part_of_a_message():
    peer = Peer()
    whole = message(b"hello")
    peer.feed(
        request(1),
        frame(DATA, PADDED, 1, b"\x04" + whole[:7] + b"\0\0\0\0"),
        frame(DATA, PADDED, 1, b"\x00" + whole[7:]),
        frame(DATA, PADDED, 1, b"\x03\0\0\0"),
        frame(DATA, PADDED | END_STREAM, 1, b"\x01" + whole + b"\0"),
    )
    assert peer.events == [("open", 1), ("message", 1, b"hello"), ("message", 1, b"hello"), ("half_close", 1)]


def test_compressed_message_reaches_the_handler_decompressed():
    peer = Peer()
    body = message(gzip.compress(b"hello"), flag=1) + message(b"plain")
    peer.feed(request(1, grpc_encoding=b"gzip"), frame(DATA, 0, 1, body))
    assert peer.events == [("open", 1), ("message", 1, b"hello"), ("message", 1, b"plain")]


def test_unsupported_compression_names_what_is_supported():
    peer = Peer()
    answer = peer.feed(request(1, grpc_encoding=b"zstd"), frame(DATA, 0, 1, message(b"x", flag=1)))
    assert status_of(answer) == b"12"
    assert peer.events == [("open", 1), ("cancel", 1)]


def test_too_large_message_ends_its_stream_before_its_bytes_arrive():
    peer = Peer(limits=Limits(max_message_size=100))
    peer.feed(request(1), request(3))
    answer = peer.feed(frame(DATA, 0, 1, message(bytes(101))[:5]))
    assert status_of(answer) == b"8"
    assert reset_codes(answer) == {1: ErrorCode.NO_ERROR}
    peer.feed(frame(DATA, 0, 1, bytes(101)), frame(DATA, 0, 3, message(bytes(100))))
    assert peer.events == [("open", 1), ("open", 3), ("cancel", 1), ("message", 3, bytes(100))]


def test_unfinished_messages_of_a_connection_are_capped_together():
    peer = Peer(limits=Limits(max_reassembly_bytes=30_000))
    peer.feed(request(1), request(3), request(5))
    peer.feed(frame(DATA, 0, 1, message(bytes(50_000))[:15_005]))
    assert peer.feed(frame(DATA, 0, 3, message(bytes(50_000))[:15_005])) == []
    assert peer.connection.reassembly_bytes == 30_000
    answer = peer.feed(frame(DATA, 0, 5, message(b"12")[:6]))
    assert status_of(answer, 5) == b"8"
    assert peer.connection.reassembly_bytes == 30_000
    peer.feed(frame(3, 0, 1, bytes(4)), frame(3, 0, 3, bytes(4)))
    assert peer.connection.reassembly_bytes == 0


def test_stream_that_ends_inside_a_message_is_internal():
    peer = Peer(Echo)
    answer = peer.feed(request(1), frame(DATA, END_STREAM, 1, message(b"hello")[:7]))
    assert status_of(answer) == b"13"
    assert reset_codes(answer) == {}
    assert peer.events == [("open", 1), ("cancel", 1)]
    assert peer.connection.reassembly_bytes == 0


def test_large_message_in_many_small_frames_arrives_whole():
    peer = Peer()
    body = bytes(range(256)) * 4096
    whole = message(body)
    peer.feed(request(1))
    for start in range(0, len(whole), 1000):
        peer.feed(frame(DATA, 0, 1, whole[start : start + 1000]))
    assert peer.events == [("open", 1), ("message", 1, body)]
