"""Any chunking of the same bytes gives the same events and the same answer; `h2` is client and oracle.

A script of client actions is played once against a connection, frame by frame, with `h2` building the bytes
and checking every answer. The recorded bytes are then replayed in other chunks to fresh connections.
"""

import contextlib
import itertools
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dataplane.extproc.http2 import Limits
from tests.dataplane.extproc.http2_client import REQUEST, Peer, Recorder, message

LIMITS = Limits(
    stream_window=70_000,
    connection_window=100_000,
    max_concurrent_streams=5,
    max_message_size=60_000,
    send_high_water=20_000,
)


class Scripted(Recorder):
    """Does what the first byte of a message says; echoes by default."""

    def on_message(self, message: bytes) -> None:
        super().on_message(message)
        action = message[:1]
        if action == b"F":
            self.writer.finish(3, "as told")
        elif action == b"R":
            raise RuntimeError("as told")
        else:
            for _ in range(3 if action == b"3" else 1):
                self.writer.send(message[:10], message[10:])

    def on_half_close(self) -> None:
        super().on_half_close()
        self.writer.finish()


class Client:
    """Plays actions through `h2` and keeps the bytes, one entry per action."""

    def __init__(self) -> None:
        config = h2.config.H2Configuration(client_side=True, header_encoding=None)
        self.h2 = h2.connection.H2Connection(config)
        self.peer = Peer(Scripted, LIMITS, greet=False)
        self.sent: list[bytes] = []
        self.received: dict[int, bytes] = {}
        self.unread: dict[int, int] = {}
        self.open_ids: set[int] = set()
        self.answer = b""
        self.h2.initiate_connection()
        self.exchange()

    def exchange(self) -> None:
        """Pass bytes back and forth until both sides are quiet."""
        while piece := self.h2.data_to_send():
            self.sent.append(piece)
            self.peer.connection.data_received(piece)
            self.peer.loop.run()
            answer = b"".join(self.peer.transport.written)
            self.peer.transport.written.clear()
            self.answer += answer
            for event in self.h2.receive_data(answer):
                self.note(event)

    def note(self, event: Any) -> None:
        assert not isinstance(event, h2.events.ConnectionTerminated), event
        if isinstance(event, h2.events.StreamReset):
            self.open_ids.discard(event.stream_id)
            self.unread.pop(event.stream_id, None)
        if isinstance(event, h2.events.DataReceived):
            stream_id = event.stream_id
            self.received[stream_id] = self.received.get(stream_id, b"") + event.data
            self.unread[stream_id] = self.unread.get(stream_id, 0) + event.flow_controlled_length

    def play(self, action: tuple[Any, ...]) -> None:
        # An action on a stream that this side has ended is no action, as is sending beyond a window.
        if action[0] in ("send", "trailers", "reset") and 2 * action[1] + 1 not in self.open_ids:
            return
        with contextlib.suppress(h2.exceptions.FlowControlError, h2.exceptions.TooManyStreamsError, KeyError):
            getattr(self, action[0])(*action[1:])
        self.exchange()

    def open(self, extra: int, ended: bool, priority: bool) -> None:
        fields = [*REQUEST, (b"x-extra", b"v" * extra)] if extra else REQUEST
        # With a long block h2 makes the first frame too large when it also has to hold the priority.
        weight = {"priority_weight": 7} if priority and extra < 1000 else {}
        stream_id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream_id, fields, end_stream=ended, **weight)
        if not ended:
            self.open_ids.add(stream_id)

    def send(self, stream: int, bodies: list[bytes], cuts: list[int], pad: int | None, ended: bool) -> None:
        whole = b"".join(message(body) for body in bodies)
        edges = [0, *sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]
        pieces = [whole[start:stop] for start, stop in itertools.pairwise(edges)]
        stream_id = 2 * stream + 1
        for piece in pieces:
            for start in range(0, len(piece) or 1, 16_000):
                self.h2.send_data(stream_id, piece[start : start + 16_000], pad_length=pad)
        if ended:
            self.h2.end_stream(stream_id)
            self.open_ids.discard(stream_id)

    def trailers(self, stream: int) -> None:
        self.h2.send_headers(2 * stream + 1, [(b"x-trailer", b"1")], end_stream=True)
        self.open_ids.discard(2 * stream + 1)

    def reset(self, stream: int) -> None:
        self.h2.reset_stream(2 * stream + 1, 8)
        self.open_ids.discard(2 * stream + 1)

    def ping(self) -> None:
        self.h2.ping(b"12345678")

    def window(self, size: int) -> None:
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: size})

    def read(self, stream: int) -> None:
        self.h2.acknowledge_received_data(self.unread.pop(2 * stream + 1), 2 * stream + 1)


STREAM = st.integers(0, 7)
BODY = st.one_of(
    st.sampled_from([b"", b"F", b"R", b"3 times", b"hello", b"x" * 300, b"y" * 17_000, b"z" * 60_001]),
    st.binary(max_size=20).map(lambda body: b"-" + body),
)
ACTION = st.one_of(
    st.tuples(st.just("open"), st.sampled_from([0, 1, 200, 20_000]), st.booleans(), st.booleans()),
    st.tuples(
        st.just("send"),
        STREAM,
        st.lists(BODY, max_size=4),
        st.lists(st.integers(0, 100_000), max_size=4),
        st.sampled_from([None, None, 0, 1, 255]),
        st.booleans(),
    ),
    st.tuples(st.just("send"), STREAM, st.lists(BODY, min_size=1), st.just([]), st.none(), st.just(False)),
    st.tuples(st.just("trailers"), STREAM),
    st.tuples(st.just("reset"), STREAM),
    st.tuples(st.just("ping")),
    st.tuples(st.just("window"), st.sampled_from([0, 1, 100, 65_535, 1_000_000])),
    st.tuples(st.just("read"), STREAM),
)


def replayed(pieces: list[bytes]) -> tuple[list[Any], bytes]:
    """Handler events and joined answer of a fresh connection that reads ``pieces``."""
    peer = Peer(Scripted, LIMITS, greet=False)
    for piece in pieces:
        peer.connection.data_received(piece)
    return peer.events, b"".join(peer.transport.written)


@hypothesis_settings(max_examples=400)
@given(st.lists(ACTION, max_size=25), st.data())
def test_any_chunking_gives_the_same_events_and_the_same_answer(actions: list[Any], data: st.DataObject):
    client = Client()
    for action in [("open", 0, False, False)] * 2 + actions:
        client.play(action)
    stream = b"".join(client.sent)
    events, answer = client.peer.events, client.answer
    assert client.peer.metrics.errors.keys() <= {"STREAM_CLOSED"}

    assert replayed([stream]) == (events, answer)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    pieces = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert replayed(pieces) == (events, answer)


@hypothesis_settings(max_examples=40)
@given(st.lists(ACTION.filter(lambda action: "y" * 100 not in repr(action)), max_size=8))
def test_single_bytes_give_the_same_events_and_the_same_answer(actions: list[Any]):
    client = Client()
    for action in [("open", 0, False, False)] * 2 + actions:
        client.play(action)
    stream = b"".join(client.sent)
    pieces = [stream[position : position + 1] for position in range(len(stream))]
    assert replayed(pieces) == (client.peer.events, client.answer)


def test_echo_through_windows_of_every_size_arrives_whole():
    client = Client()
    body = bytes(range(256)) * 150
    for number, window in enumerate((0, 1, 100, 65_535)):
        client.play(("window", window))
        client.play(("open", 20_000, False, True))
        client.play(("send", number, [b"-" + body], [9, 10_000, 20_000], 17, True))
        client.play(("window", 65_535))
        for _ in range(3):
            client.play(("read", number))
    expected = {2 * number + 1: message(b"-" + body) for number in range(4)}
    assert client.received == expected
    assert client.peer.connection.streams == {}
