"""A transform ends a response early: one regular end, and nothing of what follows."""

import pytest

from dataplane.extproc.events import (
    AnswerBody,
    AnswerTrailers,
    BodyMode,
    EndBody,
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


class Cut:
    """Lets one chunk pass and ends the body at the next."""

    def __init__(self) -> None:
        self.fed: list[tuple[bytes, bool]] = []

    def feed(self, chunk: bytes, end: bool) -> bytes:
        self.fed.append((chunk, end))
        if len(self.fed) == 2:
            raise EndBody(b"over")
        return chunk


def answering(mode: BodyMode) -> tuple[DrivenSession, Cut]:
    """A session in which a response has begun that will be cut."""
    cut = Cut()
    driven = DrivenSession(RecordingExchange(response=Proceed(transform=cut)))
    modes = Modes(response=mode)
    driven.receive(request_headers(modes=modes), request_body(b"{}", end=True), response_headers())
    return driven, cut


def test_in_full_duplex_the_body_ends_there_and_once():
    driven, cut = answering(BodyMode.FULL_DUPLEX_STREAMED)
    assert driven.receive(response_body(b"one"), response_body(b"two")) == [
        StreamBody(True, b"one", False),
        StreamBody(True, b"over", True),
    ]
    assert driven.exchange.chunks == [(b"one", False), (b"two", False), (b"", True)]
    assert driven.exchange.endings == [Ending.NATURAL]
    assert driven.receive(response_body(b"three"), response_body(b"", end=True)) == []
    assert driven.receive(response_trailers()) == [AnswerTrailers(True)]
    assert cut.fed == [(b"one", False), (b"two", False)]
    assert driven.defects == []


@pytest.mark.parametrize("end", [False, True])
def test_the_last_chunk_may_be_the_one(end: bool):
    driven, _ = answering(BodyMode.FULL_DUPLEX_STREAMED)
    effects = driven.receive(response_body(b"one"), response_body(b"two", end=end))
    assert effects[1:] == [StreamBody(True, b"over", True)]
    assert driven.exchange.endings == [Ending.NATURAL]


def test_streamed_bodies_go_on_empty():
    driven, _ = answering(BodyMode.STREAMED)
    effects = driven.receive(*(response_body(chunk) for chunk in (b"one", b"two", b"three")))
    assert [(type(effect), effect.body) for effect in effects] == [
        (AnswerBody, None),
        (AnswerBody, b"over"),
        (AnswerBody, b""),
    ]
    assert driven.exchange.endings == [Ending.NATURAL]


def test_trailers_may_bring_the_moment():
    driven, _ = answering(BodyMode.FULL_DUPLEX_STREAMED)
    assert driven.receive(response_body(b"one"), response_trailers()) == [
        StreamBody(True, b"one", False),
        StreamBody(True, b"over", False),
        AnswerTrailers(True),
    ]
