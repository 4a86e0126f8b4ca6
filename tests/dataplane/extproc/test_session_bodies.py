"""Bodies that an exchange changes: what is sent instead, in which mode, and with which length."""

import pytest

from dataplane.extproc.events import (
    AnswerBody,
    AnswerHeaders,
    AnswerTrailers,
    BodyMode,
    Modes,
    Proceed,
    ResponseHeaders,
    StreamBody,
)
from dataplane.extproc.exchange import Ending
from dataplane.headers import Headers
from tests.support.exchanges import (
    DrivenSession,
    HoldingTransform,
    RecordingExchange,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
)

FULL = BodyMode.FULL_DUPLEX_STREAMED
BUFFERED = [BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL]
NEW = b"another body"
LENGTH = ("content-length", "4")


def replacing(body: bytes = NEW) -> Proceed:
    return Proceed((("x-picked", b"a"),), ("x-secret",), {"envoy.lb": {"a": 1}}, True, body)


def sets(proceed: Proceed) -> dict[str, bytes]:
    return dict(proceed.set_headers)


def answers(driven: DrivenSession) -> list[AnswerBody]:
    return [effect for effect in driven.effects if isinstance(effect, AnswerBody)]


# -- requests ---------------------------------------------------------------------------------------------


def test_new_request_body_is_streamed_in_full_duplex_and_its_length_announced():
    driven = DrivenSession(RecordingExchange(replacing()))
    driven.receive(request_headers(LENGTH), request_body(b"ol"), request_body(b"d!", end=True))
    headers, chunk = driven.effects
    assert isinstance(headers, AnswerHeaders)
    assert sets(headers.proceed) == {"x-picked": b"a", "content-length": b"12"}
    assert (list(headers.proceed.remove_headers), headers.proceed.metadata) == (
        ["x-secret"],
        {"envoy.lb": {"a": 1}},
    )
    assert headers.proceed.clear_route_cache
    assert chunk == StreamBody(False, NEW, True)


def test_length_is_not_announced_where_it_was_not():
    decision = replacing()
    driven = DrivenSession(RecordingExchange(decision))
    driven.receive(request_headers(), request_body(b"old", end=True))
    assert driven.effects[0].proceed is decision


def test_new_request_body_before_trailers_does_not_end_the_request():
    driven = DrivenSession(RecordingExchange(replacing()))
    driven.receive(request_headers(), request_body(b"old"), request_trailers())
    assert driven.effects[1:] == [StreamBody(False, NEW, False), AnswerTrailers(False)]


def test_new_request_body_is_cut_into_chunks():
    driven = DrivenSession(RecordingExchange(replacing(b"x" * 130_000)))
    driven.receive(request_headers(), request_body(b"old", end=True))
    assert [(len(chunk.body), chunk.end_of_stream) for chunk in driven.effects[1:]] == [
        (62_000, False),
        (62_000, False),
        (6_000, True),
    ]


@pytest.mark.parametrize("mode", BUFFERED)
def test_new_request_body_of_a_buffered_request_comes_with_its_length(mode: BodyMode):
    driven = DrivenSession(RecordingExchange(replacing()))
    driven.receive(request_headers(LENGTH, modes=Modes(mode, FULL)), request_body(b"old!", end=True))
    assert driven.effects[0].proceed.set_headers == ()
    (answer,) = answers(driven)
    assert answer.body == NEW
    assert sets(answer.proceed) == {"x-picked": b"a", "content-length": b"12"}


def test_new_request_body_takes_the_place_of_all_streamed_messages():
    driven = DrivenSession(RecordingExchange(replacing()))
    modes = Modes(BodyMode.STREAMED, FULL, body_without_waiting=True)
    driven.receive(request_headers(LENGTH, modes=modes))
    driven.receive(request_body(b"ol"), request_body(b"d!"), request_body(end=True))
    assert sets(driven.effects[0].proceed)["content-length"] == b"12"
    assert [answer.body for answer in answers(driven)] == [NEW, b"", b""]


def test_late_decision_can_replace_the_body():
    driven = DrivenSession(RecordingExchange(None))
    driven.receive(request_headers(), request_body(b"old", end=True))
    assert driven.resume(replacing())[1:] == [StreamBody(False, NEW, True)]


@pytest.mark.parametrize("mode", [FULL, BodyMode.STREAMED, BodyMode.NONE])
def test_body_that_is_not_here_is_not_replaced(mode: BodyMode):
    decision = replacing()
    driven = DrivenSession(RecordingExchange(decision, needs_request_body=False))
    driven.receive(request_headers(LENGTH, modes=Modes(mode, FULL)))
    assert driven.effects == [AnswerHeaders(False, decision)]
    if mode is not BodyMode.NONE:
        driven.receive(request_body(b"old!", end=True))
        assert getattr(driven.effects[1], "body") == (b"old!" if mode is FULL else None)  # noqa: B009 - either kind


def test_request_without_a_body_is_given_none():
    driven = DrivenSession(RecordingExchange(replacing()))
    driven.receive(request_headers(end=True))
    assert [type(effect) for effect in driven.effects] == [AnswerHeaders]


# -- responses --------------------------------------------------------------------------------------------


def with_length(size: int) -> ResponseHeaders:
    return ResponseHeaders(Headers.of([(":status", "200"), ("content-length", str(size))]), False, None, None)


def transformed(hold: int, mode: BodyMode = FULL, headers: ResponseHeaders | None = None) -> DrivenSession:
    """A session whose response headers have been answered with a transform; its effects from there on."""
    transform = HoldingTransform(hold)
    driven = DrivenSession(RecordingExchange(response=Proceed((("x-seen", b"1"),), transform=transform)))
    driven.receive(request_headers(end=True, modes=Modes(FULL, mode)), headers or response_headers())
    del driven.effects[0]
    return driven


def test_chunks_pass_through_the_transform_and_the_exchange_sees_them_as_they_came():
    driven = transformed(hold=2)
    assert driven.receive(response_body(b"xa")) == [StreamBody(True, b"xAAA", False)]
    assert driven.receive(response_body(b"ly")) == [StreamBody(True, b"A", False)]
    assert driven.receive(response_body(b"z", end=True)) == [StreamBody(True, b"Ayz", True)]
    assert driven.receive(response_body(b"z", end=True)) == []
    assert driven.exchange.chunks == [(b"xa", False), (b"ly", False), (b"z", True)]
    assert driven.exchange.endings == [Ending.NATURAL]


def test_chunk_that_is_held_back_altogether_is_not_answered_in_full_duplex():
    driven = transformed(hold=10)
    assert driven.receive(response_body(b"xa")) == []
    assert driven.receive(response_body(b"", end=True)) == [StreamBody(True, b"xAAAAA", True)]


def test_transformed_chunk_is_cut_when_it_has_become_too_long():
    driven = transformed(hold=0)
    chunks = driven.receive(response_body(b"a" * 20_000, end=True))
    assert [(len(chunk.body), chunk.end_of_stream) for chunk in chunks] == [(62_000, False), (38_000, True)]


def test_what_is_held_back_precedes_the_trailers_in_full_duplex():
    driven = transformed(hold=10)
    driven.receive(response_body(b"xa"))
    assert driven.receive(response_trailers()) == [StreamBody(True, b"xAAAAA", False), AnswerTrailers(True)]
    assert driven.exchange.endings == [Ending.NATURAL]


@pytest.mark.parametrize("mode", [FULL, BodyMode.STREAMED])
def test_length_of_a_response_that_passes_in_chunks_is_not_announced(mode: BodyMode):
    driven = transformed(0, mode, with_length(5))
    (answer,) = driven.effects
    assert sets(answer.proceed) == {"x-seen": b"1"}
    assert list(answer.proceed.remove_headers) == ["content-length"]


def test_each_streamed_message_is_answered_with_what_becomes_of_it():
    driven = transformed(2, BodyMode.STREAMED)
    driven.receive(response_body(b"xa"), response_body(b"l"), response_body(b"", end=True))
    assert [answer.body for answer in answers(driven)] == [b"xAAA", b"", b"AA"]


@pytest.mark.parametrize("mode", BUFFERED)
def test_buffered_body_is_replaced_and_its_length_set(mode: BodyMode):
    driven = transformed(3, mode, with_length(4))
    driven.receive(response_body(b"xaly", end=True))
    headers, answer = driven.effects
    assert list(headers.proceed.remove_headers) == []
    assert (answer.body, sets(answer.proceed)) == (b"xAAAAAy", {"content-length": b"7"})
    assert driven.exchange.endings == [Ending.NATURAL]


def test_length_of_a_body_that_is_not_shown_whole_changes_by_the_difference():
    driven = transformed(3, BodyMode.BUFFERED_PARTIAL, with_length(1000))
    driven.receive(response_body(b"xaly"))
    assert sets(answers(driven)[0].proceed) == {"content-length": b"1003"}


def test_buffered_body_without_a_length_is_given_none():
    driven = transformed(3, BodyMode.BUFFERED)
    driven.receive(response_body(b"xaly", end=True))
    assert sets(answers(driven)[0].proceed) == {}


@pytest.mark.parametrize("mode", [BodyMode.STREAMED, *BUFFERED])
def test_message_that_does_not_change_is_answered_as_unchanged(mode: BodyMode):
    driven = transformed(0, mode, with_length(5))
    driven.receive(response_body(b"other", end=True))
    assert [(answer.body, sets(answer.proceed)) for answer in answers(driven)] == [(None, {})]


@pytest.mark.parametrize(
    ("mode", "end"), [(BodyMode.NONE, False), (FULL, True)], ids=["not shown", "no body"]
)
def test_response_whose_body_is_not_seen_keeps_its_headers(mode: BodyMode, end: bool):
    headers = with_length(5)
    headers.end_of_stream = end
    driven = transformed(0, mode, headers)
    assert list(driven.effects[0].proceed.remove_headers) == []


def test_transform_that_fails_ends_the_stream_since_bytes_may_be_missing():
    class Failing:
        def feed(self, chunk: bytes, end: bool) -> bytes:
            raise ValueError("defect")

    driven = DrivenSession(RecordingExchange(response=Proceed(transform=Failing())))
    driven.receive(request_headers(end=True), response_headers())
    with pytest.raises(ValueError, match="defect"):
        driven.receive(response_body(b"x", end=True))
    assert driven.exchange.endings == []
    driven.close(Ending.ERROR)
    assert driven.exchange.endings == [Ending.ERROR]
