"""The last bytes of a response come later than its end: in order, once, and not after the stream has gone."""

import pytest

from dataplane.extproc.events import (
    AnswerBody,
    AnswerTrailers,
    BodyMode,
    LaterBody,
    Modes,
    Proceed,
    StreamBody,
)
from dataplane.extproc.exchange import Ending
from tests.support.exchanges import (
    DrivenSession,
    RecordingExchange,
    request_body,
    request_headers,
    response_body,
    response_headers,
    response_trailers,
)


class Later:
    """Holds everything back, and longer than to the end."""

    def __init__(self) -> None:
        self.take = None

    def feed(self, chunk: bytes, end: bool) -> bytes:
        if end:
            raise LaterBody(self.start)
        return b""

    def start(self, take) -> None:
        self.take = take


def answering(mode: BodyMode, *, metadata=None) -> tuple[DrivenSession, Later]:
    later = Later()
    driven = DrivenSession(RecordingExchange(response=Proceed(transform=later), metadata=metadata))
    head = response_headers()
    driven.receive(request_headers(modes=Modes(response=mode)), request_body(b"{}", end=True), head)
    return driven, later


def test_in_full_duplex_the_end_comes_with_the_last_bytes():
    metadata = {"a": {"b": 1}}
    driven, later = answering(BodyMode.FULL_DUPLEX_STREAMED, metadata=metadata)
    assert driven.receive(response_body(b"one"), response_body(b"two", end=True)) == []
    assert driven.exchange.endings == []
    assert driven.receive(response_body(b"", end=True)) == []
    before = len(driven.effects)
    later.take(b"rest")
    assert driven.effects[before:] == [StreamBody(True, b"rest", True, metadata)]
    assert driven.exchange.endings == [Ending.NATURAL]
    later.take(b"again")
    assert len(driven.effects) == before + 1
    assert driven.exchange.chunks == [(b"one", False), (b"two", True)]


def test_no_last_bytes_end_the_body_all_the_same():
    driven, later = answering(BodyMode.FULL_DUPLEX_STREAMED)
    driven.receive(response_body(b"one", end=True))
    before = len(driven.effects)
    later.take(b"")
    assert driven.effects[before:] == [StreamBody(True, b"", True)]


@pytest.mark.parametrize("rest", [b"rest", b""])
def test_trailers_wait_too(rest: bytes):
    driven, later = answering(BodyMode.FULL_DUPLEX_STREAMED)
    assert driven.receive(response_body(b"one"), response_trailers()) == []
    before = len(driven.effects)
    later.take(rest)
    body = [StreamBody(True, rest, False)] if rest else []
    assert driven.effects[before:] == [*body, AnswerTrailers(True)]
    assert driven.exchange.endings == [Ending.NATURAL]


@pytest.mark.parametrize("mode", [BodyMode.STREAMED, BodyMode.BUFFERED])
def test_outside_full_duplex_the_last_message_is_answered_late(mode: BodyMode):
    driven, later = answering(mode)
    assert driven.receive(response_body(b"one", end=True)) == []
    before = len(driven.effects)
    later.take(b"rest")
    (answer,) = driven.effects[before:]
    assert isinstance(answer, AnswerBody)
    assert answer.body == b"rest"


def test_an_answer_that_is_there_at_once():
    driven, later = answering(BodyMode.FULL_DUPLEX_STREAMED)
    later.start = lambda take: take(b"rest")
    assert driven.receive(response_body(b"one", end=True)) == [StreamBody(True, b"rest", True)]


def test_nothing_is_sent_after_the_stream_has_gone():
    driven, later = answering(BodyMode.FULL_DUPLEX_STREAMED)
    driven.receive(response_body(b"one", end=True))
    before = len(driven.effects)
    driven.close()
    assert driven.exchange.endings == [Ending.DISCONNECT]
    later.take(b"rest")
    assert len(driven.effects) == before
    assert driven.defects == []


class Pusher(Later):
    """Sends on by itself what it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.push = None

    def attach(self, push) -> None:
        self.push = push


def pushing(mode: BodyMode) -> tuple[DrivenSession, Pusher]:
    pusher = Pusher()
    driven = DrivenSession(RecordingExchange(response=Proceed(transform=pusher)))
    head = response_headers()
    driven.receive(request_headers(modes=Modes(response=mode)), request_body(b"{}", end=True), head)
    return driven, pusher


def test_in_full_duplex_bytes_are_sent_on_without_a_chunk():
    driven, pusher = pushing(BodyMode.FULL_DUPLEX_STREAMED)
    driven.receive(response_body(b"one"))
    before = len(driven.effects)
    pusher.push(b"a", False)
    pusher.push(b"", False)
    driven.receive(response_body(b"two", end=True))
    pusher.push(b"b", False)
    pusher.take(b"c")
    pusher.push(b"late", False)
    assert driven.effects[before:] == [
        StreamBody(True, b"a", False),
        StreamBody(True, b"b", False),
        StreamBody(True, b"c", True),
    ]
    assert driven.exchange.endings == [Ending.NATURAL]


def test_a_body_that_is_ended_by_itself_drops_what_still_comes():
    driven, pusher = pushing(BodyMode.FULL_DUPLEX_STREAMED)
    driven.receive(response_body(b"one"))
    before = len(driven.effects)
    pusher.push(b"cut", True)
    driven.receive(response_body(b"two"), response_body(b"", end=True))
    pusher.push(b"late", True)
    assert driven.effects[before:] == [StreamBody(True, b"cut", True)]
    assert driven.exchange.endings == [Ending.NATURAL]


@pytest.mark.parametrize("mode", [BodyMode.STREAMED, BodyMode.BUFFERED])
def test_elsewhere_nothing_can_be_sent_on_without_a_chunk(mode):
    _, pusher = pushing(mode)
    assert pusher.push is None
