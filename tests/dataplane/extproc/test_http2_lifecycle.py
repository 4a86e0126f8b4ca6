"""A stream has one end, a handler's defect costs one stream, and a connection that drains loses nothing."""

import struct

import pytest

from dataplane.extproc.http2 import ErrorCode, Limits
from tests.dataplane.extproc.http2_client import (
    ACK,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    Echo,
    Frame,
    Peer,
    Recorder,
    fields_of,
    frame,
    goaway_code,
    message,
    request,
    reset,
    reset_codes,
    settings,
    status_of,
)


class Failing(Recorder):
    """Raises in the method named by the message, or when that method comes."""

    fail_in = ""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.fail("factory")

    def on_message(self, message: bytes) -> None:
        super().on_message(message)
        self.fail("on_message")

    def on_half_close(self) -> None:
        super().on_half_close()
        self.fail("on_half_close")

    def on_cancel(self) -> None:
        super().on_cancel()
        self.fail("on_cancel")

    def on_drain(self) -> None:
        self.events.append(("drain", self.id))
        self.fail("on_drain")

    def fail(self, where: str) -> None:
        if self.fail_in == where and self.id == 1:
            raise RuntimeError(f"defect in {where}")


@pytest.mark.parametrize("where", ["factory", "on_message", "on_half_close"])
def test_exception_of_a_handler_ends_its_stream_alone(where: str, caplog: pytest.LogCaptureFixture):
    peer = Peer(type("In", (Failing,), {"fail_in": where}))
    answer = peer.feed(
        request(1),
        frame(DATA, 0, 1, message(b"a") + message(b"b")),
        request(3),
        frame(DATA, 0, 3, message(b"c")),
        frame(DATA, END_STREAM, 1),
        frame(DATA, END_STREAM, 3),
    )
    assert status_of(answer, 1) == b"13"
    assert fields_of(answer[0].payload)[b"grpc-message"] == b"internal error"
    assert peer.metrics.handler_errors == 1
    assert caplog.text.count(f"RuntimeError: defect in {where}") == 1
    expected = {
        "factory": [],
        "on_message": [("message", 1, b"a"), ("cancel", 1)],
        "on_half_close": [("message", 1, b"a"), ("message", 1, b"b"), ("half_close", 1), ("cancel", 1)],
    }
    assert [event for event in peer.events if event[1] == 1] == [("open", 1), *expected[where]]
    assert [event for event in peer.events if event[1] == 3] == [
        ("open", 3),
        ("message", 3, b"c"),
        ("half_close", 3),
    ]


def test_exception_in_on_cancel_is_logged_and_the_others_are_still_told(caplog: pytest.LogCaptureFixture):
    peer = Peer(type("In", (Failing,), {"fail_in": "on_cancel"}))
    peer.feed(request(1), request(3))
    peer.connection.connection_lost(ConnectionResetError())
    assert peer.events[-2:] == [("cancel", 1), ("cancel", 3)]
    assert "defect in on_cancel" in caplog.text
    assert peer.metrics.handler_errors == 1
    assert peer.metrics.streams_cancelled == 2


def test_split_message_whose_handler_fails_ends_the_stream_too():
    peer = Peer(type("In", (Failing,), {"fail_in": "on_message"}))
    whole = message(b"a") + message(b"b")
    peer.feed(request(1), frame(DATA, 0, 1, whole[:3]))
    answer = peer.feed(frame(DATA, 0, 1, whole[3:]))
    assert status_of(answer) == b"13"
    assert peer.events == [("open", 1), ("message", 1, b"a"), ("cancel", 1)]


class FinishesAtFirst(Recorder):
    """Answers the first message and is done."""

    def on_message(self, message: bytes) -> None:
        super().on_message(message)
        self.writer.send(b"done")
        self.writer.finish()


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
def test_handler_that_finished_hears_nothing_more(cut: bool):
    peer = Peer(FinishesAtFirst)
    whole = message(b"a") + message(b"b")
    pieces = [whole[:8], whole[8:]] if cut else [whole]
    answer = peer.feed(request(1), *(frame(DATA, 0, 1, piece) for piece in pieces), frame(DATA, 1, 1))
    assert peer.events == [("open", 1), ("message", 1, b"a")]
    assert reset_codes(answer) == {1: ErrorCode.NO_ERROR}
    peer.connection.connection_lost(None)
    assert peer.events == [("open", 1), ("message", 1, b"a")]
    assert peer.metrics.streams_cancelled == 0


def test_peer_that_has_sent_all_is_not_told_to_stop():
    peer = Peer(FinishesAtFirst)
    answer = peer.feed(request(1), frame(DATA, END_STREAM, 1, message(b"a")))
    assert status_of(answer) == b"0"
    assert reset_codes(answer) == {}
    assert peer.connection.streams == {}


def test_handler_may_finish_when_it_is_made():
    class Refuses(Recorder):
        def __init__(self, *args) -> None:
            super().__init__(*args)
            self.writer.finish(8, "busy")

    peer = Peer(Refuses)
    answer = peer.feed(request(1), frame(DATA, END_STREAM, 1, message(b"a")))
    assert status_of(answer) == b"8"
    assert peer.events == [("open", 1)]


def test_handler_may_answer_on_another_stream():
    class Crossed(Recorder):
        def on_message(self, message: bytes) -> None:
            other = self.events and peer.handlers[0]
            other.writer.send(message)
            other.writer.finish()

    peer = Peer(Crossed)
    answer = peer.feed(request(1), request(3), frame(DATA, 0, 3, message(b"x")), frame(DATA, END_STREAM, 1))
    assert status_of(answer, 1) == b"0"
    assert [found.payload for found in answer if found.kind == DATA] == [message(b"x")]
    assert list(peer.connection.streams) == [3]


def test_frames_behind_the_message_that_closed_the_connection_are_not_handled():
    class Closes(Recorder):
        def on_message(self, message: bytes) -> None:
            super().on_message(message)
            peer.connection.close("enough")

    peer = Peer(Closes)
    answer = peer.feed(request(1), frame(DATA, 0, 1, message(b"a") + message(b"b")), request(3))
    assert status_of(answer) == b"14"
    assert peer.events == [("open", 1), ("message", 1, b"a"), ("cancel", 1)]
    assert peer.transport.is_closed


def test_what_handlers_send_while_their_connection_ends_goes_nowhere():
    class SendsToTheOther(Recorder):
        def on_cancel(self) -> None:
            super().on_cancel()
            peer.handlers[1].writer.send(b"too late")

    peer = Peer(SendsToTheOther)
    peer.feed(request(1), request(3))
    answer = peer.feed(frame(PING, 0, 1, bytes(8)))
    assert [found.kind for found in answer] == [GOAWAY]
    assert peer.events == [("open", 1), ("open", 3), ("cancel", 1), ("cancel", 3)]


def test_reset_by_the_peer_cancels_once():
    peer = Peer()
    peer.feed(request(1))
    peer.feed(reset(1), reset(1))
    peer.connection.connection_lost(None)
    assert peer.events == [("open", 1), ("cancel", 1)]
    assert not peer.handlers[0].writer.is_open
    assert (peer.metrics.streams_reset, peer.metrics.streams_cancelled, peer.metrics.streams_open) == (
        1,
        1,
        0,
    )


def test_lost_connection_cancels_what_runs_and_counts():
    peer = Peer()
    peer.feed(request(1), request(3), frame(DATA, 0, 3, message(b"half")[:7]))
    peer.handlers[0].writer.send(b"not flushed")
    peer.connection.connection_lost(ConnectionResetError())
    peer.loop.run()
    peer.handlers[0].writer.send(b"too late")
    peer.loop.run()
    assert peer.transport.written == []
    assert peer.events[-2:] == [("cancel", 1), ("cancel", 3)]
    assert peer.metrics.connections_open == 0
    assert peer.connection.reassembly_bytes == 0


def test_finished_stream_holds_no_reference_to_its_handler():
    peer = Peer(Echo)
    peer.feed(request(1))
    stream = peer.connection.streams[1]
    peer.feed(frame(DATA, END_STREAM, 1))
    assert stream.handler is None
    stream.on_message(b"ignored")
    assert peer.events == [("open", 1), ("half_close", 1)]


def test_drain_takes_streams_under_way_and_closes_after_the_last():
    peer = Peer(Echo)
    peer.feed(request(1))
    peer.connection.drain()
    first, ping = peer.sent()
    assert first == Frame(GOAWAY, 0, 0, struct.pack(">LL", 0x7FFF_FFFF, 0) + b"draining")
    assert ping.kind == PING
    peer.feed(request(3))
    assert ("open", 3) in peer.events
    answer = peer.feed(frame(PING, ACK, 0, ping.payload), request(5))
    assert answer == [Frame(GOAWAY, 0, 0, struct.pack(">LL", 3, 0) + b"draining")]
    assert ("open", 5) not in peer.events
    assert peer.feed(frame(DATA, 0, 5, message(b"ignored")), frame(DATA, END_STREAM, 1))[-1].stream_id == 1
    assert not peer.transport.is_closed
    answer = peer.feed(frame(DATA, END_STREAM, 3, message(b"last")))
    assert [found.kind for found in answer] == [HEADERS, DATA, HEADERS]
    assert peer.transport.is_closed
    assert not peer.transport.is_aborted


def test_idle_connection_closes_as_soon_as_the_peer_knows():
    peer = Peer()
    peer.connection.drain()
    peer.connection.drain()
    _, ping = peer.sent()
    assert not peer.transport.is_closed
    peer.feed(frame(PING, ACK, 0, ping.payload))
    assert peer.transport.is_closed


def test_connection_without_a_preface_is_closed_by_a_drain_without_a_frame():
    peer = Peer(greet=False)
    peer.feed(PREFACE[:5])
    peer.connection.drain()
    assert peer.transport.is_closed
    assert peer.sent() == []


def test_drain_tells_the_handlers_that_want_to_know_and_survives_their_defects():
    peer = Peer(type("In", (Failing,), {"fail_in": "on_drain"}))
    peer.feed(request(1), request(3))
    peer.connection.drain()
    assert peer.events[-3:] == [("drain", 1), ("cancel", 1), ("drain", 3)]
    assert status_of(peer.sent(), 1) == b"13"


def test_close_ends_running_streams_as_unavailable():
    peer = Peer(client_settings=settings((4, 0)))
    peer.feed(request(1), request(3), request(5))
    peer.handlers[1].writer.send(b"waits")
    peer.handlers[2].writer.send(b"waits")
    peer.handlers[2].writer.finish()
    peer.loop.run()
    peer.sent()
    peer.connection.close("the drain timed out")
    answer = peer.sent()
    assert status_of(answer, 1) == b"14"
    assert status_of(answer, 3) == b"14"
    assert reset_codes(answer)[5] == ErrorCode.CANCEL
    assert goaway_code(answer) == ErrorCode.NO_ERROR
    assert peer.events[-2:] == [("cancel", 1), ("cancel", 3)]
    assert peer.transport.is_closed
    peer.connection.close("again")
    assert peer.feed(request(7)) == []


def test_close_cuts_a_connection_that_lingers_after_a_fault():
    peer = Peer()
    peer.feed(frame(PING, 0, 1, bytes(8)))
    peer.connection.close("the server stops")
    assert peer.transport.is_aborted


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        (b"", ErrorCode.SETTINGS_TIMEOUT),
        (PREFACE[:-1], ErrorCode.SETTINGS_TIMEOUT),
        (PREFACE + settings(), ErrorCode.SETTINGS_TIMEOUT),
        (
            PREFACE + settings() + frame(SETTINGS, ACK) + frame(HEADERS, 0, 1, b"x"),
            ErrorCode.ENHANCE_YOUR_CALM,
        ),
    ],
    ids=["silent", "half a preface", "settings not acknowledged", "half a header block"],
)
def test_connection_that_does_not_get_going_is_closed(hello: bytes, code: ErrorCode):
    peer = Peer(limits=Limits(preface_timeout_s=3, flood_interval_s=1), greet=False)
    if hello:
        peer.feed(hello)
    for _ in range(3):
        peer.connection.tick()
        assert not peer.connection.closed
    peer.connection.tick()
    assert goaway_code(peer.sent()) == code
    peer.connection.tick()


def test_idle_connection_stays_open_for_ever():
    peer = Peer()
    peer.feed(request(1))
    for _ in range(1000):
        peer.connection.tick()
    assert not peer.connection.closed
    assert peer.events == [("open", 1)]
