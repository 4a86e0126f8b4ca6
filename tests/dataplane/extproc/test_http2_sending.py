"""What is sent never exceeds the peer's windows and frame size, keeps its order, waits within caps."""

import struct

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dataplane.extproc.http2 import ErrorCode, Limits
from tests.dataplane.extproc.http2_client import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST_STREAM,
    WINDOW_UPDATE,
    Echo,
    Frame,
    Peer,
    Recorder,
    fields_of,
    frame,
    message,
    request,
    reset,
    reset_codes,
    settings,
    status_of,
    window_update,
)


def opened(peer: Peer, stream_id: int = 1) -> Recorder:
    peer.feed(request(stream_id))
    return peer.handlers[-1]


def flushed(peer: Peer) -> list[Frame]:
    peer.loop.run()
    return peer.sent()


def data_of(frames: list[Frame], stream_id: int = 1) -> bytes:
    return b"".join(found.payload for found in frames if found.kind == DATA and found.stream_id == stream_id)


def test_answer_is_headers_then_messages_then_trailers_in_one_write():
    peer = Peer(Echo)
    peer.connection.data_received(
        request(1) + frame(DATA, 0, 1, message(b"a") + message(b"bc")) + frame(DATA, END_STREAM, 1)
    )
    assert len(peer.transport.written) == 1
    head, first, second, trailers = peer.sent()
    assert fields_of(head.payload) == {b":status": b"200", b"content-type": b"application/grpc"}
    assert head.flags == END_HEADERS
    assert (first, second) == (Frame(DATA, 0, 1, message(b"a")), Frame(DATA, 0, 1, message(b"bc")))
    assert trailers.flags == END_HEADERS | END_STREAM
    assert fields_of(trailers.payload) == {b"grpc-status": b"0"}
    assert peer.metrics.frames_out == 2 + 1 + 4  # greeting, the ACK of the peer's settings, the answer


def test_parts_of_a_message_are_sent_as_one():
    peer = Peer()
    writer = opened(peer).writer
    writer.send(b"one", b"", b"two", b"three")
    writer.send()
    assert data_of(flushed(peer)) == message(b"onetwothree") + message(b"")


def test_what_is_sent_between_reads_leaves_with_one_write():
    peer = Peer()
    writer = opened(peer).writer
    writer.send(b"a")
    writer.send(b"b")
    writer.finish()
    assert peer.transport.written == []
    peer.loop.run()
    assert len(peer.transport.written) == 1


def test_finish_with_a_status_before_anything_was_sent_is_trailers_only():
    peer = Peer()
    opened(peer).writer.finish(5, "näher\n100%")
    trailers, end = flushed(peer)
    assert trailers.flags == END_HEADERS | END_STREAM
    assert fields_of(trailers.payload) == {
        b":status": b"200",
        b"content-type": b"application/grpc",
        b"grpc-status": b"5",
        b"grpc-message": b"n%C3%A4her%0A100%25",
    }
    assert end == Frame(RST_STREAM, 0, 1, struct.pack(">L", ErrorCode.NO_ERROR))


def test_status_without_a_message_sends_none():
    peer = Peer()
    opened(peer).writer.finish(7)
    assert fields_of(flushed(peer)[0].payload) == {
        b":status": b"200",
        b"content-type": b"application/grpc",
        b"grpc-status": b"7",
    }


def test_long_status_messages_are_cut_at_a_whole_character():
    peer = Peer()
    opened(peer).writer.finish(13, "ä" * 2000)
    text = fields_of(flushed(peer)[0].payload)[b"grpc-message"]
    assert text == b"%C3%A4" * (1024 // 6)


def test_finish_is_heard_once_and_nothing_is_sent_after_it():
    peer = Peer()
    writer = opened(peer).writer
    assert writer.is_open
    writer.finish()
    writer.finish(13, "again")
    writer.send(b"late")
    assert not writer.is_open
    answer = flushed(peer)
    assert [found.kind for found in answer] == [HEADERS, RST_STREAM]
    assert status_of(answer) == b"0"
    assert peer.events == [("open", 1)]


def test_message_larger_than_a_frame_is_cut_into_full_frames():
    peer = Peer()
    opened(peer).writer.send(bytes(40_000))
    sizes = [len(found.payload) for found in flushed(peer) if found.kind == DATA]
    assert sizes == [16_384, 16_384, 40_005 - 2 * 16_384]


def test_larger_frames_are_used_when_the_peer_takes_them():
    peer = Peer(client_settings=settings((5, 30_000)))
    opened(peer).writer.send(bytes(40_000))
    assert [len(found.payload) for found in flushed(peer) if found.kind == DATA] == [30_000, 10_005]


def test_stream_window_holds_back_what_does_not_fit_and_trailers_come_last():
    peer = Peer(Echo, client_settings=settings((4, 10)))
    answer = peer.feed(request(1), frame(DATA, END_STREAM, 1, message(b"0123456789")))
    assert data_of(answer) == message(b"0123456789")[:10]
    assert peer.handlers[0].writer.buffered_bytes == 5
    assert peer.feed(window_update(1, 4)) == [Frame(DATA, 0, 1, b"5678")]
    last, trailers = peer.feed(window_update(1, 100))
    assert last == Frame(DATA, 0, 1, b"9")
    assert status_of([trailers]) == b"0"
    assert peer.connection.streams == {}
    assert peer.events[-1] == ("half_close", 1)


def test_connection_window_is_shared_in_turns():
    peer = Peer(client_settings=settings((4, 200_000)))
    first, second, third = (opened(peer, stream_id).writer for stream_id in (1, 3, 5))
    first.send(bytes(65_535 - 5))
    flushed(peer)
    for writer in (first, second, third):
        writer.send(bytes(20_000))
    assert data_of(flushed(peer)) == b""
    turns = [found.stream_id for found in peer.feed(window_update(0, 200_000)) if found.kind == DATA]
    assert turns == [1, 3, 5, 1, 3, 5]
    assert peer.connection.queued == 0


def test_window_that_becomes_negative_is_paid_off_before_more_is_sent():
    peer = Peer()
    writer = opened(peer).writer
    writer.send(bytes(995))
    flushed(peer)
    peer.feed(settings((4, 400)))
    writer.send(b"x" * 95)
    assert data_of(flushed(peer)) == b""
    assert data_of(peer.feed(window_update(1, 600))) == b""
    assert data_of(peer.feed(window_update(1, 1))) == b"\0"
    assert data_of(peer.feed(settings((4, 499)))) == (message(b"x" * 95))[1:]


def test_initial_window_applies_to_streams_opened_later():
    peer = Peer(client_settings=settings((4, 3), (4, 2)))
    opened(peer).writer.send(b"abc")
    assert data_of(flushed(peer)) == b"\0\0"


def test_small_messages_queue_behind_a_large_one():
    peer = Peer(client_settings=settings((4, 20)))
    writer = opened(peer).writer
    writer.send(b"a" * 30)
    writer.send(b"b")
    flushed(peer)
    assert data_of(peer.feed(window_update(1, 100))) == (message(b"a" * 30) + message(b"b"))[20:]


def test_stream_that_does_not_read_gets_no_more_window_until_it_does():
    limits = Limits(stream_window=65_536, send_high_water=30_000)
    peer = Peer(Echo, limits, client_settings=settings((4, 0)))
    peer.feed(request(1))
    for _ in range(4):
        answer = peer.feed(frame(DATA, 0, 1, message(bytes(15_995))))
    assert peer.connection.queued == 64_000
    updates = [found for found in answer if found.kind == WINDOW_UPDATE]
    assert updates == []
    answer = peer.feed(window_update(1, 64_000))
    given = [found.payload for found in answer if found.kind == WINDOW_UPDATE and found.stream_id == 1]
    assert given == [struct.pack(">L", 64_000)]


def test_stream_that_takes_too_much_room_is_reset_and_its_handler_told_afterwards():
    limits = Limits(max_stream_send_buffer=1000)
    peer = Peer(limits=limits, client_settings=settings((4, 0)))
    writer = opened(peer).writer
    writer.send(bytes(994))
    assert writer.buffered_bytes == 999
    writer.send(b"")
    assert not writer.is_open
    assert ("cancel", 1) not in peer.events
    assert reset_codes(flushed(peer)) == {1: ErrorCode.ENHANCE_YOUR_CALM}
    assert peer.events == [("open", 1), ("cancel", 1)]
    assert peer.connection.queued == 0
    assert peer.metrics.floods == {"send_buffer": 1}


def test_send_buffers_of_a_connection_are_capped_together():
    limits = Limits(max_connection_send_buffer=1000)
    peer = Peer(limits=limits, client_settings=settings((4, 0)))
    first, second = opened(peer, 1).writer, opened(peer, 3).writer
    first.send(bytes(595))
    second.send(bytes(395))
    assert first.is_open
    assert second.is_open
    second.send(b"")
    assert reset_codes(flushed(peer)) == {3: ErrorCode.ENHANCE_YOUR_CALM}
    assert first.is_open
    assert peer.connection.queued == 600


def test_data_waits_while_the_socket_is_behind_and_control_frames_do_not():
    peer = Peer()
    writer = opened(peer).writer
    peer.connection.pause_writing()
    writer.send(b"abc")
    assert [found.kind for found in flushed(peer)] == [HEADERS]
    assert [found.kind for found in peer.feed(frame(6, 0, 0, bytes(8)))] == [6]
    assert peer.feed(settings((5, 20_000)))[0].flags == 1
    assert writer.buffered_bytes == 8
    peer.connection.resume_writing()
    assert peer.sent() == [Frame(DATA, 0, 1, message(b"abc"))]
    writer.send(bytes(19_000))
    assert [len(found.payload) for found in flushed(peer)] == [19_005]


def test_peer_that_never_reads_is_dropped_at_the_control_backlog():
    peer = Peer(limits=Limits(max_control_backlog=34))
    ping = frame(PING, 0, 0, bytes(8))
    for _ in range(2):
        peer.connection.pause_writing()
        peer.feed(ping, ping)
        assert not peer.transport.is_aborted
        peer.connection.resume_writing()
    peer.connection.pause_writing()
    peer.feed(ping, ping)
    peer.feed(ping)
    assert peer.transport.is_aborted


def test_large_answers_are_written_in_pieces_so_that_the_socket_can_stop_them():
    wide = settings((4, 0x7FFF_FFFF)) + window_update(0, 0x7FFF_0000)
    peer = Peer(client_settings=wide)
    writer = opened(peer).writer
    writer.send(bytes(1_000_000))
    peer.loop.run()
    sizes = [len(piece) for piece in peer.transport.written]
    assert len(sizes) == 4
    assert max(sizes) < 300_000
    assert data_of(peer.sent()) == message(bytes(1_000_000))

    peer.transport.write = lambda data: peer.connection.pause_writing()  # type: ignore[method-assign]
    writer.send(bytes(1_000_000))
    assert 700_000 < writer.buffered_bytes < 1_000_000


def test_reset_of_a_waiting_stream_frees_its_queue_and_serves_the_next():
    peer = Peer()
    first, second = opened(peer, 1).writer, opened(peer, 3).writer
    first.send(bytes(70_000))
    second.send(b"hello")
    flushed(peer)
    assert peer.feed(reset(1)) == []
    assert peer.connection.queued == 10
    assert data_of(peer.feed(window_update(0, 100)), 3) == message(b"hello")
    assert peer.events[-1] == ("cancel", 1)


def test_received_data_is_topped_up_in_batches():
    peer = Peer(limits=Limits(stream_window=100_000, connection_window=200_000))
    peer.feed(request(1), request(3))
    answers = [peer.feed(frame(DATA, 0, 1, message(bytes(9_995)))) for _ in range(11)]
    updates = [[(f.stream_id, int.from_bytes(f.payload, "big")) for f in answer] for answer in answers]
    assert updates == [[]] * 5 + [[(1, 60_000)]] + [[]] * 4 + [[(0, 110_000)]]


@pytest.mark.parametrize("fast", [True, False], ids=["whole messages", "padded"])
def test_data_beyond_the_stream_window_is_a_flow_control_error(fast: bool):
    peer = Peer(limits=Limits(stream_window=65_535, send_high_water=0), client_settings=settings((4, 0)))
    peer.feed(request(1))
    peer.handlers[0].writer.send(b"unread, so the window is not topped up")
    piece = frame(DATA, 0, 1, message(bytes(13_102)))
    for _ in range(5):
        assert peer.feed(piece)[:1] in ([], [Frame(HEADERS, 4, 1, peer_head(peer))])
    last = frame(DATA, 0, 1, b"\0") if fast else frame(DATA, 8, 1, b"\0")
    assert reset_codes(peer.feed(last)) == {1: ErrorCode.FLOW_CONTROL_ERROR}
    assert peer.events[-1] == ("cancel", 1)


def peer_head(_peer: Peer) -> bytes:
    return b"\x20\x88\x0f\x10\x10application/grpc"


def test_data_beyond_the_connection_window_ends_the_connection():
    peer = Peer(limits=Limits(connection_window=65_535))
    peer.feed(request(1))
    peer.connection.recv_window = 10
    answer = peer.feed(frame(DATA, 0, 1, message(b"123456")))
    assert answer[-1].payload[4:8] == struct.pack(">L", ErrorCode.FLOW_CONTROL_ERROR)


class SendingMachine(RuleBasedStateMachine):
    """Whatever is sent and however the windows move: order kept, windows kept, everything leaves in the
    end."""

    def __init__(self) -> None:
        super().__init__()
        self.peer = Peer(client_settings=settings((4, 50)))
        self.initial = 50
        self.connection_window = 65_535
        self.windows: dict[int, int] = {}
        self.expected: dict[int, bytes] = {}
        self.received: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.finished: set[int] = set()

    @precondition(lambda self: len(self.windows) < 4)
    @rule()
    def open(self) -> None:
        stream_id = 2 * len(self.windows) + 1
        self.windows[stream_id] = self.initial
        self.expected[stream_id] = self.received[stream_id] = b""
        self.take(self.peer.feed(request(stream_id)))

    @precondition(lambda self: self.windows)
    @rule(data=st.data(), size=st.sampled_from([0, 1, 7, 60, 40_000]))
    def send(self, data: st.DataObject, size: int) -> None:
        stream_id = data.draw(st.sampled_from(sorted(self.windows)))
        if stream_id in self.finished:
            return
        body = bytes([stream_id]) * size
        self.handler(stream_id).writer.send(body[: size // 2], body[size // 2 :])
        self.expected[stream_id] += message(body)
        self.flush()

    @precondition(lambda self: self.windows)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        stream_id = data.draw(st.sampled_from(sorted(self.windows)))
        self.handler(stream_id).writer.finish()
        self.finished.add(stream_id)
        self.flush()

    @rule(data=st.data(), increment=st.sampled_from([1, 10, 1000, 50_000]))
    def update(self, data: st.DataObject, increment: int) -> None:
        stream_id = data.draw(st.sampled_from([0, *sorted(self.windows)]))
        if stream_id == 0:
            self.connection_window += increment
        else:
            self.windows[stream_id] += increment
        self.take(self.peer.feed(window_update(stream_id, increment)))

    @rule(initial=st.sampled_from([0, 1, 50, 5000, 70_000]))
    def resize(self, initial: int) -> None:
        for stream_id in self.windows:
            self.windows[stream_id] += initial - self.initial
        self.initial = initial
        self.take(self.peer.feed(settings((4, initial))))

    @rule(paused=st.booleans())
    def socket(self, paused: bool) -> None:
        if paused:
            self.peer.connection.pause_writing()
        else:
            self.peer.connection.resume_writing()
        self.flush()

    def handler(self, stream_id: int) -> Recorder:
        return self.peer.handlers[stream_id // 2]

    def flush(self) -> None:
        self.peer.loop.run()
        self.take(self.peer.sent())

    def take(self, frames: list[Frame]) -> None:
        for found in frames:
            if found.kind == DATA:
                assert found.stream_id not in self.ended
                assert 0 < len(found.payload) <= 16_384
                self.windows[found.stream_id] -= len(found.payload)
                self.connection_window -= len(found.payload)
                self.received[found.stream_id] += found.payload
                assert self.windows[found.stream_id] >= 0
                assert self.connection_window >= 0
            elif found.kind == HEADERS and found.flags & END_STREAM:
                assert found.stream_id in self.finished
                assert self.received[found.stream_id] == self.expected[found.stream_id]
                self.ended.add(found.stream_id)

    @invariant()
    def order_is_kept(self) -> None:
        for stream_id, expected in self.expected.items():
            assert expected.startswith(self.received[stream_id])

    @invariant()
    def what_waits_is_counted(self) -> None:
        waiting = {key: len(self.expected[key]) - len(self.received[key]) for key in self.expected}
        assert self.peer.connection.queued == sum(waiting.values())
        if self.peer.connection.send_frame_limit:
            stuck = [key for key, size in waiting.items() if size and self.windows[key] > 0]
            assert not stuck or self.connection_window <= 0

    def teardown(self) -> None:
        self.peer.connection.resume_writing()
        self.flush()
        self.connection_window += 10_000_000
        self.take(self.peer.feed(window_update(0, 10_000_000)))
        for stream_id in self.windows:
            self.windows[stream_id] += 10_000_000
            self.take(self.peer.feed(window_update(stream_id, 10_000_000)))
        assert self.received == self.expected
        assert self.ended == self.finished


TestSendingMachine = SendingMachine.TestCase
TestSendingMachine.settings = hypothesis_settings(max_examples=40, stateful_step_count=30)
