"""How streams open: header blocks in every legal form, what is refused and with which answer."""

import hpack
import pytest

from dataplane.extproc.http2 import ErrorCode, Limits
from tests.dataplane.extproc.http2_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PATH,
    PREFACE,
    REQUEST,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Echo,
    Frame,
    Peer,
    block,
    fields_of,
    frame,
    message,
    request,
    reset_codes,
    settings,
    status_of,
)


def test_server_greets_with_its_settings_and_acknowledges_the_peers():
    peer = Peer(greet=False, limits=Limits(max_concurrent_streams=7, stream_window=70_000))
    assert peer.feed(PREFACE) == []
    hello = peer.feed(settings((3, 100)))
    assert hello == [
        Frame(
            SETTINGS,
            0,
            0,
            bytes.fromhex("000100000000 000300000007 000400011170 000600010000".replace(" ", "")),
        ),
        Frame(WINDOW_UPDATE, 0, 0, (16 * 1024 * 1024 - 65_535).to_bytes(4, "big")),
        Frame(SETTINGS, ACK, 0, b""),
    ]


def test_larger_frames_are_announced_when_they_are_allowed():
    peer = Peer(greet=False, limits=Limits(max_frame_size=65_536))
    hello = peer.feed(PREFACE, settings())
    assert hello[0].payload.endswith(bytes.fromhex("000500010000"))
    peer.feed(frame(SETTINGS, ACK), request(1), frame(DATA, 0, 1, message(bytes(60_000))))
    assert peer.events == [("open", 1), ("message", 1, bytes(60_000))]


@pytest.mark.parametrize(
    "frames",
    [
        frame(HEADERS, END_HEADERS, 1, block()),
        frame(HEADERS, END_HEADERS | PADDED, 1, b"\x03" + block() + b"\0\0\0"),
        frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, b"\0\0\0\0\x0f" + block()),
        frame(HEADERS, END_HEADERS | HAS_PRIORITY | PADDED, 1, b"\x01\x80\0\0\0\x0f" + block() + b"\0"),
        frame(HEADERS, 0, 1) + frame(CONTINUATION, END_HEADERS, 1, block()),
        frame(HEADERS, 0, 1, block()) + frame(CONTINUATION, END_HEADERS, 1),
        frame(HEADERS, PADDED, 1, b"\x02" + block()[:20] + b"\0\0")
        + frame(CONTINUATION, 0, 1, block()[20:21])
        + frame(CONTINUATION, END_HEADERS, 1, block()[21:]),
    ],
    ids=["plain", "padded", "priority", "padded priority", "empty headers", "empty continuation", "three"],
)
def test_header_block_is_the_same_in_every_legal_form(frames: bytes):
    peer = Peer()
    assert peer.feed(frames) == []
    assert peer.events == [("open", 1)]
    assert list(peer.handlers[0].headers) == REQUEST


def test_blocks_may_use_the_dynamic_table_until_our_settings_are_acknowledged():
    peer = Peer(acknowledge=False)
    encoder = hpack.Encoder()
    first, second = encoder.encode(REQUEST), encoder.encode(REQUEST)
    assert len(second) < len(first)
    peer.feed(frame(HEADERS, END_HEADERS, 1, first), frame(HEADERS, END_HEADERS, 3, second))
    encoder.header_table_size = 0
    third = encoder.encode(REQUEST)
    peer.feed(frame(SETTINGS, ACK), frame(HEADERS, END_HEADERS, 5, third))
    assert [list(handler.headers) for handler in peer.handlers] == [REQUEST] * 3


def test_blocks_of_streams_nobody_serves_still_reach_the_dynamic_table():
    peer = Peer(acknowledge=False, limits=Limits(max_concurrent_streams=1))
    encoder = hpack.Encoder()
    refused = [*REQUEST, (b"x-later", b"1")]
    answer = peer.feed(
        frame(HEADERS, END_HEADERS, 1, encoder.encode(REQUEST)),
        frame(HEADERS, END_HEADERS, 3, encoder.encode(refused)),
        frame(HEADERS, END_HEADERS | END_STREAM, 3, encoder.encode([(b"x-late", b"2")])),
        frame(RST_STREAM, 0, 1, bytes(4)),
        frame(HEADERS, END_HEADERS, 5, encoder.encode([*refused, (b"x-late", b"2")])),
    )
    assert reset_codes(answer) == {3: ErrorCode.REFUSED_STREAM}
    assert list(peer.handlers[1].headers) == [*refused, (b"x-late", b"2")]


def test_repeated_block_is_decoded_once(monkeypatch: pytest.MonkeyPatch):
    peer = Peer()
    peer.feed(request(1))
    monkeypatch.setattr(hpack.Decoder, "decode", None)
    peer.feed(request(3), request(5))
    assert [handler.headers for handler in peer.handlers] == [tuple(REQUEST)] * 3


def test_streams_beyond_the_limit_are_refused_until_one_ends():
    peer = Peer(Echo, Limits(max_concurrent_streams=2))
    answer = peer.feed(request(1), request(3), request(5))
    assert reset_codes(answer) == {5: ErrorCode.REFUSED_STREAM}
    assert peer.metrics.streams_refused == 1
    peer.feed(frame(DATA, END_STREAM, 3))
    assert reset_codes(peer.feed(request(7), request(9))) == {9: ErrorCode.REFUSED_STREAM}
    assert [event for event in peer.events if event[0] == "open"] == [("open", 1), ("open", 3), ("open", 7)]


def test_unknown_path_is_unimplemented():
    peer = Peer()
    answer = peer.feed(request(1, ended=True, path=b"/other.Service/Call"))
    assert len(answer) == 1
    assert answer[0].flags == END_HEADERS | END_STREAM
    assert fields_of(answer[0].payload) == {
        b":status": b"200",
        b"content-type": b"application/grpc",
        b"grpc-status": b"12",
        b"grpc-message": b"'/other.Service/Call' is not served here",
        b"grpc-accept-encoding": b"identity,gzip",
    }
    assert peer.events == []


@pytest.mark.parametrize(
    "content_type", [b"application/grpc+proto", b"Application/gRPC", b"application/grpc; charset=utf-8"]
)
def test_content_types_of_grpc_are_served(content_type: bytes):
    peer = Peer()
    assert peer.feed(request(1, content_type=content_type)) == []
    assert peer.events == [("open", 1)]


@pytest.mark.parametrize("content_type", [b"application/json", b"application/grpc-web", b"application/grpcx"])
def test_other_content_types_are_answered_with_http_415_and_a_reason(content_type: bytes):
    peer = Peer()
    head, body = peer.feed(request(1, ended=True, content_type=content_type))
    text = b"only gRPC is served here: content-type must be application/grpc\n"
    assert fields_of(head.payload) == {
        b":status": b"415",
        b"content-type": b"text/plain; charset=utf-8",
        b"content-length": str(len(text)).encode(),
    }
    assert body == Frame(DATA, END_STREAM, 1, text)
    assert peer.connection.streams == {}


def test_get_is_answered_with_http_405_and_head_without_a_body():
    peer = Peer()
    head, body = peer.feed(request(1, ended=True, method=b"GET"))
    assert fields_of(head.payload)[b":status"] == b"405"
    assert fields_of(head.payload)[b"allow"] == b"POST"
    assert body.flags == END_STREAM
    (head,) = peer.feed(request(3, ended=True, method=b"HEAD"))
    assert fields_of(head.payload)[b":status"] == b"405"
    assert head.flags == END_HEADERS | END_STREAM
    assert peer.connection.streams == {}
    assert peer.metrics.streams_open == 0


def test_connect_needs_no_path_and_is_refused_like_other_methods():
    peer = Peer()
    fields = [(b":method", b"CONNECT"), (b":authority", b"elsewhere:443")]
    head, _ = peer.feed(frame(HEADERS, END_HEADERS, 1, block(fields)))
    assert fields_of(head.payload)[b":status"] == b"405"


def test_refused_request_may_finish_its_body_but_not_send_without_end():
    limits = Limits(max_refused_body=20_000)
    peer = Peer(limits=limits)
    answer = peer.feed(request(1, method=b"PUT"), request(3, method=b"PUT"))
    assert [found.kind for found in answer] == [HEADERS, DATA] * 2
    assert peer.feed(frame(DATA, 0, 1, bytes(10_000)), frame(DATA, END_STREAM, 1, bytes(10_000))) == []
    assert list(peer.connection.streams) == [3]
    assert peer.feed(frame(DATA, 0, 3, bytes(16_000))) == []
    assert reset_codes(peer.feed(frame(DATA, 0, 3, bytes(4_001)))) == {3: ErrorCode.NO_ERROR}
    assert peer.connection.streams == {}
    assert peer.metrics.errors == {}


def test_oversized_header_list_is_answered_with_http_431():
    peer = Peer(limits=Limits(max_header_list=1000))
    answer = peer.feed(request(1, ended=True, x_long=b"a" * 1000))
    assert fields_of(answer[0].payload)[b":status"] == b"431"
    peer.feed(request(3))
    assert peer.events == [("open", 3)]


def test_oversized_header_list_ends_the_connection_while_its_table_has_state():
    peer = Peer(limits=Limits(max_header_list=1000), acknowledge=False)
    answer = peer.feed(request(1, ended=True, x_long=b"a" * 1000))
    assert answer[-1].payload[4:8] == ErrorCode.ENHANCE_YOUR_CALM.to_bytes(4, "big")
    assert peer.metrics.floods == {"header_list": 1}


def test_oversized_trailers_end_the_stream_with_resource_exhausted():
    peer = Peer(limits=Limits(max_header_list=1000))
    peer.feed(request(1))
    answer = peer.feed(frame(HEADERS, END_HEADERS | END_STREAM, 1, block([(b"x-long", b"a" * 1000)])))
    assert status_of(answer) == b"8"
    assert peer.events == [("open", 1), ("cancel", 1)]


def test_trailers_of_the_request_half_close_the_stream():
    peer = Peer(Echo)
    answer = peer.feed(
        request(1),
        frame(DATA, 0, 1, message(b"x")),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, block([(b"x-checksum", b"1")])),
    )
    assert peer.events == [("open", 1), ("message", 1, b"x"), ("half_close", 1)]
    assert status_of(answer) == b"0"


def test_headers_may_carry_the_end_of_the_stream():
    peer = Peer(Echo)
    answer = peer.feed(request(1, ended=True))
    assert peer.events == [("open", 1), ("half_close", 1)]
    assert status_of(answer) == b"0"
    assert reset_codes(answer) == {}


def test_content_length_that_fits_is_accepted():
    peer = Peer()
    body = message(b"abc") + message(b"de")
    answer = peer.feed(
        request(1, content_length=str(len(body)).encode()),
        frame(DATA, 0, 1, body[:4]),
        frame(DATA, 0, 1, body[4:9]),
        frame(DATA, END_STREAM, 1, body[9:]),
    )
    assert answer == []
    assert peer.events == [("open", 1), ("message", 1, b"abc"), ("message", 1, b"de"), ("half_close", 1)]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"2H", 7200), (b"3M", 180), (b"4S", 4), (b"500m", 0.5), (b"7u", 7e-6), (b"8n", 8e-9)],
)
def test_grpc_timeout_ends_the_stream_when_it_passes(value: bytes, seconds: float):
    peer = Peer()
    peer.feed(request(1, grpc_timeout=value))
    (timer,) = peer.loop.timers
    assert timer.delay == pytest.approx(seconds)
    timer.fire()
    peer.loop.run()
    answer = peer.sent()
    assert status_of(answer) == b"4"
    assert reset_codes(answer) == {1: ErrorCode.NO_ERROR}
    assert peer.events == [("open", 1), ("cancel", 1)]


def test_grpc_timeout_is_forgotten_when_the_stream_ends_before():
    peer = Peer(Echo)
    peer.feed(request(1, grpc_timeout=b"1S"), frame(DATA, END_STREAM, 1))
    (timer,) = peer.loop.timers
    assert timer.cancelled


def test_grpc_timeout_cuts_an_answer_the_peer_does_not_take():
    peer = Peer(Echo, client_settings=settings((4, 0)))
    peer.feed(request(1, grpc_timeout=b"1S"), frame(DATA, END_STREAM, 1, message(b"x")))
    assert peer.connection.queued == 6
    peer.loop.timers[0].fire()
    peer.loop.run()
    assert reset_codes(peer.sent()) == {1: ErrorCode.CANCEL}
    assert peer.connection.queued == 0
    assert peer.connection.streams == {}
    assert ("cancel", 1) not in peer.events


@pytest.mark.parametrize("value", [b"", b"1", b"S", b"123456789S", b"-1S", b"1s", b"1.5S"])
def test_malformed_grpc_timeout_is_refused(value: bytes):
    peer = Peer()
    answer = peer.feed(request(1, ended=True, grpc_timeout=value))
    assert status_of(answer) == b"13"
    assert peer.events == []


def test_paths_are_matched_whole():
    peer = Peer()
    answer = peer.feed(request(1, ended=True, path=PATH + b"/"), request(3, ended=True, path=PATH.upper()))
    assert status_of(answer, 1) == b"12"
    assert status_of(answer, 3) == b"12"
