"""Frames that break RFC 9113 end the stream or the connection with the code that the RFC names."""

import struct

import pytest

from dataplane.extproc.http2 import ErrorCode
from tests.dataplane.extproc.http2_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    REQUEST,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    Peer,
    block,
    fields_of,
    frame,
    goaway_code,
    message,
    request,
    reset,
    reset_codes,
    settings,
    window_update,
)

P = ErrorCode.PROTOCOL_ERROR
SIZE = ErrorCode.FRAME_SIZE_ERROR
FLOW = ErrorCode.FLOW_CONTROL_ERROR
CLOSED = ErrorCode.STREAM_CLOSED
COMPRESSION = ErrorCode.COMPRESSION_ERROR

OPEN = request(1)
ENDED = request(1, ended=True)
HALF_BLOCK = frame(HEADERS, 0, 1, block()[:10])

CONNECTION_FAULTS = {
    "data on stream 0": ([frame(DATA, 0, 0, b"x")], P),
    "data on an idle stream": ([frame(DATA, END_STREAM, 1, b"test")], P),
    "data on an even stream": ([OPEN, frame(DATA, 0, 2, b"test")], P),
    "data with more padding than payload": ([OPEN, frame(DATA, PADDED, 1, b"\x05test")], P),
    "data padded without a pad length": ([OPEN, frame(DATA, PADDED, 1)], SIZE),
    "headers on stream 0": ([frame(HEADERS, END_HEADERS, 0, block())], P),
    "headers on an even stream": ([frame(HEADERS, END_HEADERS, 2, block())], P),
    "headers on a smaller stream": ([request(5, ended=True), request(3)], P),
    "headers with more padding than payload": (
        [frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff" + block())],
        P,
    ),
    "headers padded without a pad length": ([frame(HEADERS, END_HEADERS | PADDED, 1)], SIZE),
    "headers without room for the priority": ([frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, b"1234")], SIZE),
    "headers within a header block": ([HALF_BLOCK, request(3)], P),
    "data within a header block": ([HALF_BLOCK, frame(DATA, 0, 1, b"x")], P),
    "priority within a header block": ([HALF_BLOCK, frame(PRIORITY, 0, 1, bytes(5))], P),
    "unknown frame within a header block": ([HALF_BLOCK, frame(0xF0)], P),
    "continuation of another stream": ([HALF_BLOCK, frame(CONTINUATION, END_HEADERS, 3, block()[10:])], P),
    "continuation on stream 0": ([HALF_BLOCK, frame(CONTINUATION, END_HEADERS, 0, block()[10:])], P),
    "continuation without headers": ([frame(CONTINUATION, END_HEADERS, 1, block())], P),
    "continuation after the block": ([OPEN, frame(CONTINUATION, END_HEADERS, 1, block())], P),
    "continuation after data": ([OPEN, frame(DATA, 0, 1, message(b"")), frame(CONTINUATION, 4, 1, b"")], P),
    "headers on a closed stream": ([OPEN + reset(1), OPEN], CLOSED),
    "garbage header block": ([frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff")], COMPRESSION),
    "truncated header block": ([frame(HEADERS, END_HEADERS, 1, block()[:-1])], COMPRESSION),
    "dynamic index without a table": ([frame(HEADERS, END_HEADERS, 1, b"\xbe")], COMPRESSION),
    "index 0": ([frame(HEADERS, END_HEADERS, 1, b"\x80")], COMPRESSION),
    "table size above the announced 0": ([frame(HEADERS, END_HEADERS, 1, b"\x21" + block())], COMPRESSION),
    "table size update after a field": ([frame(HEADERS, END_HEADERS, 1, block() + b"\x20")], COMPRESSION),
    "huffman padding longer than 7 bits": (
        [frame(HEADERS, END_HEADERS, 1, block() + b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff")],
        COMPRESSION,
    ),
    "huffman with EOS": (
        [frame(HEADERS, END_HEADERS, 1, block() + b"\x00\x88\xf2\xb2\x4a\x84\xff\xff\xff\xff\x81\xff")],
        COMPRESSION,
    ),
    "priority on stream 0": ([frame(PRIORITY, 0, 0, bytes(5))], P),
    "priority of 4 bytes on an idle stream": ([frame(PRIORITY, 0, 1, bytes(4))], SIZE),
    "idle stream that depends on itself": ([frame(PRIORITY, 0, 1, b"\0\0\0\1\0")], P),
    "reset on stream 0": ([reset(0)], P),
    "reset of an idle stream": ([reset(1)], P),
    "reset of 3 bytes": ([OPEN, frame(RST_STREAM, 0, 1, b"123")], SIZE),
    "settings on a stream": ([frame(SETTINGS, 0, 1)], P),
    "settings of 5 bytes": ([frame(SETTINGS, 0, 0, b"12345")], SIZE),
    "settings ACK with a payload": ([frame(SETTINGS, ACK, 0, bytes(6))], SIZE),
    "settings: push neither 0 nor 1": ([settings((2, 2))], P),
    "settings: window above 2^31-1": ([settings((4, 1 << 31))], FLOW),
    "settings: frame size below 2^14": ([settings((5, 16383))], P),
    "settings: frame size above 2^24-1": ([settings((5, 1 << 24))], P),
    "settings that lift a window above 2^31-1": (
        [OPEN, window_update(1, (1 << 31) - 1 - 65535), settings((4, 65536))],
        FLOW,
    ),
    "push promise": ([frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + block())], P),
    "ping on a stream": ([frame(PING, 0, 1, bytes(8))], P),
    "ping of 6 bytes": ([frame(PING, 0, 0, bytes(6))], SIZE),
    "goaway on a stream": ([frame(GOAWAY, 0, 1, bytes(8))], P),
    "goaway of 7 bytes": ([frame(GOAWAY, 0, 0, bytes(7))], SIZE),
    "window update of 0": ([window_update(0, 0)], P),
    "window update of 3 bytes": ([frame(WINDOW_UPDATE, 0, 0, b"123")], SIZE),
    "window update of an idle stream": ([window_update(1, 5)], P),
    "window update above 2^31-1": ([window_update(0, (1 << 31) - 1)], FLOW),
    "frame larger than announced": ([OPEN, frame(DATA, 0, 1, bytes(16385))], SIZE),
}


@pytest.mark.parametrize("name", CONNECTION_FAULTS)
def test_connection_fault_ends_the_connection_and_every_stream(name: str):
    pieces, code = CONNECTION_FAULTS[name]
    peer = Peer()
    bystander = peer.feed(*pieces[:-1])
    opened = [event for event in peer.events if event[0] == "open"]
    assert GOAWAY not in [found.kind for found in bystander]

    answer = peer.feed(pieces[-1])

    assert goaway_code(answer) == code
    assert peer.transport.sent_eof
    assert peer.connection.closed
    assert peer.connection.streams == {}
    cancelled = [("cancel", event[1]) for event in opened]
    assert [event for event in peer.events if event[0] == "cancel"] == cancelled
    assert peer.metrics.errors == {code.name: 1}
    assert peer.feed(request(101), frame(PING, 0, 0, bytes(8))) == []


STREAM_FAULTS = {
    "trailers without END_STREAM": ([OPEN, frame(HEADERS, END_HEADERS, 1, block([(b"x", b"y")]))], P),
    "trailers with a pseudo-header field": ([OPEN, frame(HEADERS, 5, 1, block([(b":method", b"POST")]))], P),
    "trailers with an upper case name": ([OPEN, frame(HEADERS, 5, 1, block([(b"X-Test", b"y")]))], P),
    "data after END_STREAM": ([ENDED, frame(DATA, END_STREAM, 1, b"test")], CLOSED),
    "headers after END_STREAM": ([ENDED, ENDED], CLOSED),
    "data after a reset": ([OPEN + reset(1), frame(DATA, END_STREAM, 1, b"test")], CLOSED),
    "stream that depends on itself": (
        [frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, b"\0\0\0\1\0" + block())],
        P,
    ),
    "open stream made to depend on itself": ([OPEN, frame(PRIORITY, 0, 1, b"\0\0\0\1\0")], P),
    "priority of 4 bytes": ([OPEN, frame(PRIORITY, 0, 1, bytes(4))], SIZE),
    "window update of 0 on a stream": ([OPEN, window_update(1, 0)], P),
    "window update above 2^31-1 on a stream": ([OPEN, window_update(1, (1 << 31) - 1)], FLOW),
    "body longer than content-length": (
        [request(1, content_length=b"4"), frame(DATA, 0, 1, message(b"abc"))],
        P,
    ),
    "body shorter than content-length": (
        [request(1, content_length=b"9"), frame(DATA, END_STREAM, 1, message(b"abc"))],
        P,
    ),
    "no body in spite of content-length": ([request(1, ended=True, content_length=b"9")], P),
    "trailers before content-length is reached": (
        [request(1, content_length=b"9"), frame(HEADERS, 5, 1, block([(b"x", b"y")]))],
        P,
    ),
}


@pytest.mark.parametrize("name", STREAM_FAULTS)
def test_stream_fault_ends_one_stream_and_leaves_the_others(name: str):
    pieces, code = STREAM_FAULTS[name]
    peer = Peer()
    answer = peer.feed(*pieces)

    assert reset_codes(answer) == {1: code}
    assert GOAWAY not in [found.kind for found in answer]
    assert peer.connection.streams == {}
    assert peer.metrics.errors == {code.name: 1}
    opens = peer.events.count(("open", 1))
    assert peer.events.count(("cancel", 1)) == opens
    assert peer.metrics.streams_open == 0

    peer.feed(request(3), frame(DATA, 0, 3, message(b"still here")))
    assert ("message", 3, b"still here") in peer.events


def with_fields(*extra: tuple[bytes, bytes], without: bytes = b"") -> bytes:
    fields = [pair for pair in REQUEST if pair[0] != without]
    return frame(HEADERS, END_HEADERS | END_STREAM, 1, block([*fields, *extra]))


MALFORMED = {
    "upper case name": with_fields((b"X-Test", b"ok")),
    "unknown pseudo-header field": with_fields((b":test", b"ok")),
    "pseudo-header field of responses": frame(HEADERS, 5, 1, block([*REQUEST[:4], (b":status", b"200")])),
    "pseudo-header field after a regular one": frame(
        HEADERS, 5, 1, block([(b"x-test", b"ok"), *REQUEST[:4]])
    ),
    "connection": with_fields((b"connection", b"keep-alive")),
    "transfer-encoding": with_fields((b"transfer-encoding", b"chunked")),
    "upgrade": with_fields((b"upgrade", b"h2c")),
    "te other than trailers": with_fields((b"te", b"trailers, deflate"), without=b"te"),
    "empty path": with_fields((b":path", b""), without=b":path"),
    "no method": with_fields(without=b":method"),
    "no scheme": with_fields(without=b":scheme"),
    "no path": with_fields(without=b":path"),
    "method twice": frame(HEADERS, 5, 1, block([REQUEST[0], *REQUEST])),
    "path twice": frame(HEADERS, 5, 1, block([REQUEST[2], *REQUEST])),
    "empty name": with_fields((b"", b"ok")),
    "space in a name": with_fields((b"x test", b"ok")),
    "newline in a value": with_fields((b"x-test", b"a\nb")),
    "NUL in a value": with_fields((b"x-test", b"a\0b")),
    "space before a value": with_fields((b"x-test", b" a")),
    "tab after a value": with_fields((b"x-test", b"a\t")),
    "newline in the path": with_fields((b":path", b"/a\nb"), without=b":path"),
    "content-length that is no number": with_fields((b"content-length", b"-1")),
    "content-lengths that differ": with_fields((b"content-length", b"0"), (b"content-length", b"1")),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_request_is_reset_and_never_reaches_a_handler(name: str):
    peer = Peer()
    answer = peer.feed(MALFORMED[name])
    assert answer == [Frame(RST_STREAM, 0, 1, struct.pack(">L", P))]
    assert peer.events == []
    assert peer.metrics.streams_opened == 0


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", P),
        (PREFACE[:10] + b"x", P),
        (PREFACE + frame(PING, 0, 0, bytes(8)), P),
        (PREFACE + frame(SETTINGS, ACK), P),
        (PREFACE + frame(SETTINGS, 0, 1), P),
        (PREFACE + frame(SETTINGS, 0, 0, bytes(16386)), SIZE),
    ],
    ids=["http/1.1", "broken off", "ping first", "ack first", "settings on a stream", "settings too large"],
)
def test_connection_that_does_not_begin_as_it_must_is_closed(hello: bytes, code: ErrorCode):
    peer = Peer(greet=False)
    answer = peer.feed(hello)
    assert goaway_code(answer) == code
    assert peer.transport.sent_eof


def test_goaway_names_the_last_stream_and_says_why():
    peer = Peer()
    peer.feed(request(7))
    answer = peer.feed(frame(PING, 0, 1, bytes(8)))
    assert answer[-1] == Frame(GOAWAY, 0, 0, struct.pack(">LL", 7, P) + b"PING on a stream")


def test_connection_is_cut_when_the_peer_does_not_close_it_after_a_goaway():
    peer = Peer()
    peer.feed(frame(PING, 0, 1, bytes(8)))
    (timer,) = peer.loop.timers
    assert timer.delay == peer.limits.linger_s
    assert not peer.transport.is_aborted
    timer.fire()
    assert peer.transport.is_aborted


def test_defect_of_the_transport_costs_one_connection(caplog: pytest.LogCaptureFixture, monkeypatch):
    peer = Peer()
    peer.feed(request(1))
    monkeypatch.setattr(type(peer.connection), "half_close", lambda *_: 1 / 0)
    answer = peer.feed(frame(DATA, END_STREAM, 1))
    assert goaway_code(answer) == ErrorCode.INTERNAL_ERROR
    assert peer.events == [("open", 1), ("cancel", 1)]
    assert "ZeroDivisionError" in caplog.text


def test_unknown_frames_flags_and_the_reserved_bit_are_ignored():
    peer = Peer()
    answer = peer.feed(
        frame(0xF0, 0xFF, 1, b"extension"),
        frame(PING, 0xFE, 0, b"12345678"),
        frame(PING, 0, 1 << 31, b"87654321"),
        request(1),
        frame(DATA, 0x2, 1, message(b"undefined flag")),
        frame(DATA, END_STREAM, 1 << 31 | 1, message(b"reserved bit")),
    )
    assert answer == [Frame(PING, ACK, 0, b"12345678"), Frame(PING, ACK, 0, b"87654321")]
    assert peer.events == [
        ("open", 1),
        ("message", 1, b"undefined flag"),
        ("message", 1, b"reserved bit"),
        ("half_close", 1),
    ]


def test_late_frames_for_a_stream_that_ended_are_no_fault():
    peer = Peer()
    peer.feed(request(1))
    peer.handlers[0].writer.finish()
    peer.loop.run()
    answer = peer.sent()
    assert reset_codes(answer) == {1: ErrorCode.NO_ERROR}
    late = peer.feed(
        frame(DATA, 0, 1, message(b"late")),
        window_update(1, 100),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, block([(b"x-late", b"1")])),
        reset(1),
        frame(PRIORITY, 0, 1, bytes(5)),
        frame(PING, 0, 0, bytes(8)),
    )
    assert [found.kind for found in late] == [PING]
    assert peer.events == [("open", 1)]


def test_goaway_of_the_client_changes_nothing_for_running_streams():
    peer = Peer()
    answer = peer.feed(request(1), frame(GOAWAY, 0, 0, bytes(8)), frame(DATA, 1, 1, message(b"x")))
    assert answer == []
    assert peer.events == [("open", 1), ("message", 1, b"x"), ("half_close", 1)]


def test_response_fields_are_readable_whatever_table_the_peer_allows():
    peer = Peer(client_settings=settings((1, 0)))
    peer.feed(request(1))
    peer.handlers[0].writer.send(b"x")
    peer.loop.run()
    head = peer.sent()[0]
    assert head.payload.startswith(b"\x20")
    assert fields_of(head.payload) == {b":status": b"200", b"content-type": b"application/grpc"}
