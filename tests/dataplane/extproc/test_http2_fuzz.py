"""Broken input of every kind: nothing escapes, every stream has one end, memory stays bounded."""

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dataplane.extproc.http2 import ErrorCode, Limits
from tests.dataplane.extproc.http2_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    REQUEST,
    SETTINGS,
    Echo,
    Peer,
    block,
    frame,
    frames_of,
    message,
    request,
    reset,
    settings,
    window_update,
)

LIMITS = Limits(
    max_message_size=50_000,
    max_reassembly_bytes=60_000,
    max_stream_send_buffer=40_000,
    max_connection_send_buffer=60_000,
    max_concurrent_streams=4,
    max_remembered_resets=8,
    max_header_block=2000,
    max_header_list=4000,
    stream_window=65_535,
    connection_window=65_535,
)

STREAM_ID = st.sampled_from([0, 1, 1, 1, 2, 3, 3, 5, 7, 9, 0x7FFF_FFFF, 0x8000_0001])
PAYLOAD = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([4, 5, 6, 8]).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
    st.sampled_from([block(), block()[:20], block()[20:], b"\x20" + block(), b"\xff" * 20, b"\0" * 3000]),
    st.sampled_from([message(b""), message(b"hello"), message(bytes(20_000))[:16_000], bytes(16_384)]),
)
FRAME = st.one_of(
    st.builds(frame, st.integers(0, 11), st.integers(0, 255), STREAM_ID, PAYLOAD),
    st.builds(frame, st.sampled_from([DATA, HEADERS, CONTINUATION]), st.integers(0, 5), STREAM_ID, PAYLOAD),
    st.builds(request, st.sampled_from([1, 3, 5, 7, 9, 11])),
    st.builds(lambda stream_id, body: frame(DATA, 0, stream_id, message(body)), STREAM_ID, st.binary()),
    st.builds(window_update, STREAM_ID, st.sampled_from([0, 1, 100, 65_535, 0x7FFF_FFFF])),
    st.builds(lambda key, value: settings((key, value)), st.integers(0, 8), st.integers(0, 0xFFFF_FFFF)),
    st.builds(reset, STREAM_ID),
    st.binary(max_size=40),
)


def assert_sound(peer: Peer, answer: bytes) -> None:
    """What holds whatever was read."""
    frames = frames_of(answer)
    goaways = [found for found in frames if found.kind == GOAWAY]
    assert len(goaways) == (1 if peer.connection.closed else 0)
    if goaways:
        assert frames[-1] is goaways[0]
        assert peer.connection.streams == {}
        _, code = struct.unpack_from(">LL", goaways[0].payload)
        assert code not in (ErrorCode.NO_ERROR, ErrorCode.INTERNAL_ERROR)
    assert "INTERNAL_ERROR" not in peer.metrics.errors
    assert peer.metrics.handler_errors == 0

    connection = peer.connection
    assert connection.queued == sum(stream.queued for stream in connection.streams.values())
    assert 0 <= connection.queued <= LIMITS.max_connection_send_buffer
    assert 0 <= connection.reassembly_bytes <= LIMITS.max_reassembly_bytes
    assert len(connection.streams) <= LIMITS.max_concurrent_streams
    assert len(connection.resets) <= LIMITS.max_remembered_resets
    assert peer.metrics.streams_open == len(connection.streams)

    assert peer.metrics.buffered_bytes == connection.queued + connection.reassembly_bytes

    connection.connection_lost(None)
    peer.loop.run()
    assert peer.metrics.buffered_bytes == 0
    for _, stream_id in [event for event in peer.events if event[0] == "open"]:
        mine = [event[0] for event in peer.events if event[1] == stream_id]
        assert mine.count("cancel") <= 1
        assert mine.count("half_close") <= 1
        if "half_close" in mine:  # the handler finishes there, so that is the end
            assert mine[-1] == "half_close"
        else:
            assert mine[-1] == "cancel"


def played(pieces: list[bytes], **options: Any) -> tuple[Peer, bytes]:
    peer = Peer(Echo, LIMITS, **options)
    for piece in pieces:
        peer.connection.data_received(piece)
        peer.loop.run()
    return peer, b"".join(peer.transport.written)


@hypothesis_settings(max_examples=400)
@given(st.lists(FRAME, max_size=30), st.booleans())
@example([request(1), frame(DATA, 0, 1, message(bytes(20_000))[:16_000])] * 3, True)
@example([frame(HEADERS, 0, 1, b"\xff" * 20), frame(CONTINUATION, END_HEADERS, 1, b"\xff" * 20)], True)
@example([settings((4, 0)), *(request(n) + frame(DATA, 1, n, message(bytes(9000))) for n in (1, 3, 5))], True)
@example([request(1), frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x20" * 30)], False)
def test_frames_in_any_order_and_state(pieces: list[bytes], acknowledged: bool):
    assert_sound(*played(pieces, acknowledge=acknowledged))


@hypothesis_settings(max_examples=200)
@given(st.binary(max_size=200))
def test_bytes_from_the_start(noise: bytes):
    peer, answer = played([noise], greet=False)
    assert peer.connection.closed == (not PREFACE.startswith(noise[: len(PREFACE)]))
    assert_sound(peer, answer)


VALID = b"".join(
    [
        settings((3, 100), (4, 1000)),
        frame(SETTINGS, ACK),
        request(1),
        frame(DATA, 0, 1, message(b"hello") + message(b"w" * 300)),
        frame(HEADERS, 0, 3, block()[:30]),
        frame(CONTINUATION, END_HEADERS, 3, block()[30:]),
        frame(DATA, 8, 3, b"\x02" + message(b"padded") + b"\0\0"),
        window_update(0, 1000),
        frame(6, 0, 0, b"12345678"),
        frame(DATA, END_STREAM, 3),
        reset(1),
        frame(HEADERS, END_HEADERS | END_STREAM, 5, block([*REQUEST, (b"x-long", b"v" * 300)])),
    ]
)


@hypothesis_settings(max_examples=400)
@given(st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_valid_stream_with_a_few_bytes_changed(changes: list[tuple[int, int]]):
    changed = bytearray(VALID)
    for position, value in changes:
        changed[position] = value
    peer = Peer(Echo, LIMITS, greet=False)
    peer.connection.data_received(PREFACE + bytes(changed))
    peer.loop.run()
    assert_sound(peer, b"".join(peer.transport.written))


@pytest.mark.parametrize("cut", range(0, len(VALID), 11))
def test_valid_stream_with_a_piece_cut_out(cut: int):
    peer, answer = played([PREFACE + VALID[:cut] + VALID[cut + 5 :]], greet=False)
    assert_sound(peer, answer)


@hypothesis_settings(max_examples=300)
@given(st.binary(max_size=120), st.booleans())
def test_header_blocks_of_noise(noise: bytes, acknowledged: bool):
    pieces = [frame(HEADERS, END_HEADERS | END_STREAM, 1, noise), frame(HEADERS, 5, 3, block() + noise)]
    assert_sound(*played(pieces, acknowledge=acknowledged))
