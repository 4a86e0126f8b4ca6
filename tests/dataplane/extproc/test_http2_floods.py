"""Each limit lets its number of frames pass and ends the connection at one more."""

from collections.abc import Callable

import pytest

from dataplane.extproc.http2 import ErrorCode, Limits
from tests.dataplane.extproc.http2_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    Frame,
    Peer,
    Recorder,
    block,
    frame,
    goaway_code,
    message,
    request,
    reset,
    reset_codes,
    settings,
    status_of,
    window_update,
)

CAP = 6


def rapid_reset(number: int) -> bytes:
    return request(2 * number + 3) + reset(2 * number + 3)


def stream_error(number: int) -> bytes:
    return request(2 * number + 3, path=b"")


FLOODS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "ping": ("max_pings", lambda _: frame(PING, 0, 0, bytes(8))),
    "ping ack": ("max_pings", lambda _: frame(PING, ACK, 0, bytes(8))),
    "settings": ("max_settings", lambda _: settings((3, 1))),
    "settings ack": ("max_settings", lambda _: frame(4, ACK)),
    "rapid_reset": ("max_rapid_resets", rapid_reset),
    "stream_error": ("max_stream_errors", stream_error),
    "priority": ("max_priorities", lambda n: frame(PRIORITY, 0, 2 * n + 3, bytes(5))),
    "window_update": ("max_idle_window_updates", lambda _: window_update(0, 1)),
    "window_update of a stream": ("max_idle_window_updates", lambda _: window_update(1, 1)),
    "empty_data": ("max_empty_data", lambda _: frame(DATA, 0, 1)),
    "empty_data padded": ("max_empty_data", lambda _: frame(DATA, PADDED, 1, b"\x01\0")),
    "tiny_data": ("max_tiny_data", lambda _: frame(DATA, 0, 1, b"\0")),
    "late_frame": ("max_late_frames", lambda _: window_update(101, 9)),
    "late_frame reset": ("max_late_frames", lambda _: reset(101)),
    "late_frame data": ("max_late_frames", lambda _: frame(DATA, 0, 101, b"late")),
    "late_frame headers": ("max_late_frames", lambda _: frame(HEADERS, 5, 101, block())),
    "unknown_frame": ("max_unknown_frames", lambda _: frame(0x42, 0, 1)),
    "unknown_frame goaway": ("max_unknown_frames", lambda _: frame(GOAWAY, 0, 0, bytes(8))),
}


class EndsAtOnce(Recorder):
    """Finishes stream 101 when it opens, so that frames for it come late."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        if self.id == 101:
            self.writer.finish()


def flooded(name: str) -> tuple[Peer, Callable[[int], bytes]]:
    limit, build = FLOODS[name]
    peer = Peer(EndsAtOnce, Limits(**{limit: CAP}))  # type: ignore[arg-type]
    peer.feed(request(1), frame(DATA, 0, 1, message(bytes(5000))[:2000]))
    if "late" in name:
        peer.feed(request(101))
    peer.connection.tick()
    return peer, build


@pytest.mark.parametrize("name", FLOODS)
def test_flood_ends_the_connection_one_frame_past_its_limit(name: str):
    peer, build = flooded(name)
    passed = peer.feed(*(build(number) for number in range(CAP)))
    assert GOAWAY not in [found.kind for found in passed]
    assert goaway_code(peer.feed(build(CAP))) == ErrorCode.ENHANCE_YOUR_CALM
    assert peer.metrics.floods == {name.partition(" ")[0]: 1}
    assert peer.connection.streams == {}
    assert ("cancel", 1) in peer.events


@pytest.mark.parametrize("name", FLOODS)
def test_limit_is_per_interval(name: str):
    peer, build = flooded(name)
    for start in range(0, 5 * CAP, CAP):
        passed = peer.feed(*(build(number) for number in range(start, start + CAP)))
        assert GOAWAY not in [found.kind for found in passed]
        peer.connection.tick()
    assert peer.metrics.floods == {}


def test_continuation_flood_is_counted_per_header_block():
    peer = Peer(limits=Limits(max_continuations=3))
    whole = block()
    allowed = [
        frame(HEADERS, 0, 1, whole[:9]),
        frame(CONTINUATION, 0, 1, whole[9:10]),
        frame(CONTINUATION, 0, 1),
        frame(CONTINUATION, END_HEADERS, 1, whole[10:]),
    ]
    assert peer.feed(*allowed) == []
    peer.connection.tick()
    answer = peer.feed(
        frame(HEADERS, 0, 3, whole[:9]),
        *(frame(CONTINUATION, 0, 3) for _ in range(3)),
        frame(PING, 0, 0, b""),
    )
    assert goaway_code(answer) == ErrorCode.PROTOCOL_ERROR

    peer = Peer(limits=Limits(max_continuations=3))
    answer = peer.feed(frame(HEADERS, 0, 3, whole[:9]), *(frame(CONTINUATION, 0, 3) for _ in range(4)))
    assert goaway_code(answer) == ErrorCode.ENHANCE_YOUR_CALM
    assert peer.metrics.floods == {"continuation": 1}


def test_header_block_over_its_size_ends_the_connection_before_it_is_decoded():
    peer = Peer(limits=Limits(max_header_block=1000))
    answer = peer.feed(frame(HEADERS, 0, 1, bytes(1000)), frame(CONTINUATION, 0, 1, b"\0"))
    assert goaway_code(answer) == ErrorCode.ENHANCE_YOUR_CALM
    assert peer.metrics.floods == {"header_block": 1}


def test_header_block_in_one_frame_is_held_to_the_same_size():
    peer = Peer(limits=Limits(max_header_block=1000))
    answer = peer.feed(frame(HEADERS, END_HEADERS, 1, bytes(1001)))
    assert goaway_code(answer) == ErrorCode.ENHANCE_YOUR_CALM


def test_resets_of_streams_that_had_data_or_an_answer_are_not_rapid():
    """A client that gives up makes Envoy reset a stream on which it has sent a message."""
    peer = Peer(limits=Limits(max_rapid_resets=0))
    peer.feed(request(1))
    peer.handlers[0].writer.send(b"answered")
    peer.loop.run()
    peer.sent()
    assert peer.feed(reset(1)) == []
    assert peer.feed(request(3), frame(DATA, 0, 3, message(b"asked")), reset(3)) == []
    assert peer.feed(request(5), frame(DATA, 0, 5, message(b"asked")[:3]), reset(5)) == []
    assert peer.metrics.streams_reset == 3
    assert goaway_code(peer.feed(request(7), reset(7))) == ErrorCode.ENHANCE_YOUR_CALM


def test_refused_streams_count_as_stream_errors():
    peer = Peer(limits=Limits(max_stream_errors=2, max_concurrent_streams=1))
    answer = peer.feed(request(1), request(3), request(5))
    assert list(reset_codes(answer)) == [3, 5]
    assert goaway_code(peer.feed(request(7))) == ErrorCode.ENHANCE_YOUR_CALM


def test_window_updates_that_set_data_free_are_not_counted():
    peer = Peer(limits=Limits(max_idle_window_updates=0), client_settings=settings((4, 0)))
    peer.feed(request(1))
    peer.handlers[0].writer.send(bytes(995))
    peer.loop.run()
    peer.sent()
    for _ in range(10):
        assert [found.kind for found in peer.feed(window_update(1, 100))] == [DATA]
    assert goaway_code(peer.feed(window_update(1, 100))) == ErrorCode.ENHANCE_YOUR_CALM


def test_frames_that_complete_a_message_or_end_the_stream_are_never_tiny():
    peer = Peer(limits=Limits(max_tiny_data=0, max_empty_data=0))
    answer = peer.feed(
        request(1),
        frame(DATA, 0, 1, message(b"")),
        frame(DATA, 0, 1, message(bytes(400))[:300]),
        frame(DATA, 0, 1, bytes(105)),
        frame(DATA, END_STREAM, 1),
    )
    assert answer == []
    assert peer.events[-1] == ("half_close", 1)


def test_remembered_resets_are_bounded():
    peer = Peer(EndsAtOnce, limits=Limits(max_remembered_resets=3))
    peer.feed(*(request(stream_id) + reset(stream_id) for stream_id in (91, 93)), request(101))
    peer.feed(*(request(stream_id, path=b"") for stream_id in (103, 105, 107)))
    assert list(peer.connection.resets) == [103, 105, 107]
    answer = peer.feed(frame(DATA, 0, 101, b"x"))
    assert answer == [Frame(3, 0, 101, ErrorCode.STREAM_CLOSED.to_bytes(4, "big"))]


def test_largest_frame_may_come_in_tiny_reads():
    peer = Peer()
    peer.feed(request(1))
    whole = frame(DATA, 0, 1, message(bytes(16_379)))
    for start in range(0, len(whole), 7):
        assert peer.feed(whole[start : start + 7]) == []
    assert peer.events[-1] == ("message", 1, bytes(16_379))


def test_streams_of_all_connections_are_capped_together():
    limits = Limits(max_server_streams=3)
    first = Peer(limits=limits)
    second = Peer(limits=limits, metrics=first.metrics)
    assert first.feed(request(1), request(3)) == []
    assert reset_codes(second.feed(request(1), request(3))) == {3: ErrorCode.REFUSED_STREAM}
    first.feed(reset(1))
    assert second.feed(request(5)) == []


def test_bytes_held_for_all_connections_are_capped_together():
    limits = Limits(max_server_buffer=1000)
    first = Peer(limits=limits, client_settings=settings((4, 0)))
    second = Peer(limits=limits, client_settings=settings((4, 0)), metrics=first.metrics)
    first.feed(request(1), frame(DATA, 0, 1, message(bytes(5000))[:505]))
    second.feed(request(1), request(3))
    second.handlers[0].writer.send(bytes(495))
    second.loop.run()
    assert first.metrics.buffered_bytes == 1000
    assert second.handlers[0].writer.is_open

    second.handlers[1].writer.send(b"")
    second.loop.run()
    assert reset_codes(second.sent()) == {3: ErrorCode.ENHANCE_YOUR_CALM}
    answer = first.feed(frame(DATA, 0, 1, b"x"))
    assert status_of(answer) == b"8"
    assert first.metrics.buffered_bytes == 500
    first.connection.connection_lost(None)
    second.connection.connection_lost(None)
    assert first.metrics.buffered_bytes == 0
    assert first.metrics.streams_open == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_frame_size", 16_383),
        ("stream_window", 65_534),
        ("connection_window", 1 << 31),
        ("max_message_size", 0),
    ],
)
def test_limit_out_of_range_is_refused_by_name(name: str, value: int):
    with pytest.raises(ValueError, match=f"{name}: {value} is not within"):
        Limits(**{name: value})  # type: ignore[arg-type]
