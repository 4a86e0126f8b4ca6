"""The response direction of a session: answers in every body mode, and what the exchange watches."""

import pytest

from dataplane.extproc.events import (
    AnswerBody,
    AnswerHeaders,
    AnswerTrailers,
    BodyMode,
    Effect,
    Modes,
    Reject,
    StreamBody,
)
from dataplane.extproc.exchange import Ending
from dataplane.extproc.phases import ProtocolError
from tests.support.exchanges import (
    PASS,
    REFUSE,
    ROUTE,
    DrivenSession,
    RecordingExchange,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
)

ONE_MESSAGE = [BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL]


def answered(exchange: RecordingExchange, mode: BodyMode = BodyMode.FULL_DUPLEX_STREAMED) -> DrivenSession:
    """A session whose request has been answered."""
    driven = DrivenSession(exchange)
    driven.receive(request_headers(end=True, modes=Modes(BodyMode.FULL_DUPLEX_STREAMED, mode)))
    assert driven.effects == [AnswerHeaders(False, ROUTE)]
    return driven


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


# -- answers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BodyMode)
@pytest.mark.parametrize("end", [True, False])
def test_an_exchange_knows_whether_it_is_shown_all_of_the_body(mode, end):
    exchange = RecordingExchange()
    answered(exchange, mode).receive(response_headers(end=end))
    hidden = mode in (BodyMode.NONE, BodyMode.BUFFERED_PARTIAL) and not end
    assert [response.is_shown for response in exchange.responses] == [not hidden]


def test_full_duplex_chunks_pass_one_by_one_and_the_end_is_marked_once():
    driven = answered(RecordingExchange())
    assert driven.receive(response_headers()) == [AnswerHeaders(True, PASS)]
    assert driven.receive(response_body(b"data: 1\n\n")) == [StreamBody(True, b"data: 1\n\n", False)]
    assert driven.receive(response_body(b"data: 2\n\n")) == [StreamBody(True, b"data: 2\n\n", False)]
    assert driven.receive(response_body(b"", end=True)) == [StreamBody(True, b"", True)]
    assert driven.receive(response_body(b"", end=True)) == []
    assert driven.exchange.endings == [Ending.NATURAL]


def test_full_duplex_end_on_data_is_passed():
    driven = answered(RecordingExchange())
    driven.receive(response_headers())
    assert driven.receive(response_body(b"all", end=True)) == [StreamBody(True, b"all", True)]
    assert driven.receive(response_body(b"all", end=True)) == []
    assert driven.exchange.chunks == [(b"all", True)]


def test_passing_chunk_is_not_copied():
    chunk = b"x" * 1000
    driven = answered(RecordingExchange())
    driven.receive(response_headers())
    assert driven.receive(response_body(chunk))[0].body is chunk


@pytest.mark.parametrize("mode", [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.STREAMED])
def test_trailers_end_a_streamed_response_and_are_answered(mode: BodyMode):
    driven = answered(RecordingExchange(), mode)
    driven.receive(response_headers(), response_body(b"body"))
    assert driven.exchange.endings == []
    assert driven.receive(response_trailers()) == [AnswerTrailers(True)]
    assert driven.exchange.chunks == [(b"body", False), (b"", True)]
    assert driven.exchange.endings == [Ending.NATURAL]


def test_trailers_without_a_body_are_answered():
    driven = answered(RecordingExchange())
    driven.receive(response_headers())
    assert driven.receive(response_trailers()) == [AnswerTrailers(True)]
    assert driven.exchange.chunks == [(b"", True)]
    assert driven.exchange.endings == [Ending.NATURAL]


def test_end_after_trailers_is_ignored():
    driven = answered(RecordingExchange())
    driven.receive(response_headers(), response_trailers())
    assert driven.receive(response_body(b"", end=True)) == []


def test_trailers_after_the_end_are_answered_and_not_a_second_end():
    driven = answered(RecordingExchange())
    driven.receive(response_headers(), response_body(b"x", end=True))
    assert driven.receive(response_trailers()) == [AnswerTrailers(True)]
    assert driven.exchange.chunks == [(b"x", True)]
    assert driven.exchange.endings == [Ending.NATURAL]


def test_headers_that_end_the_response_end_the_exchange():
    driven = answered(RecordingExchange())
    assert driven.receive(response_headers("204", end=True)) == [AnswerHeaders(True, PASS)]
    assert driven.exchange.responses[0].end_of_stream
    assert driven.exchange.chunks == []
    assert driven.exchange.endings == [Ending.NATURAL]


def test_streamed_chunks_get_one_unchanged_answer_each():
    driven = answered(RecordingExchange(), BodyMode.STREAMED)
    driven.receive(response_headers())
    for chunk, end in ((b"one", False), (b"two", False), (b"", True), (b"", True)):
        (answer,) = driven.receive(response_body(chunk, end))
        assert isinstance(answer, AnswerBody)
        assert not answer.proceed.set_headers
    assert driven.exchange.chunks == [(b"one", False), (b"two", False), (b"", True)]


@pytest.mark.parametrize("mode", ONE_MESSAGE)
@pytest.mark.parametrize("end", [True, False], ids=["end", "trailers or more than fits follow"])
def test_buffered_body_is_one_message_and_the_end(mode: BodyMode, end: bool):
    driven = answered(RecordingExchange(), mode)
    driven.receive(response_headers())
    assert kinds(driven.receive(response_body(b"body", end))) == [AnswerBody]
    assert driven.exchange.chunks == [(b"body", True)]
    assert driven.exchange.endings == [Ending.NATURAL]
    assert driven.receive(response_trailers()) == [AnswerTrailers(True)]


def test_response_without_body_processing_ends_at_its_headers():
    driven = answered(RecordingExchange(), BodyMode.NONE)
    assert driven.receive(response_headers()) == [AnswerHeaders(True, PASS)]
    assert driven.exchange.endings == [Ending.NATURAL]
    assert driven.receive(response_trailers()) == [AnswerTrailers(True)]
    assert driven.exchange.chunks == []


def test_early_response_does_not_disturb_the_rest_of_the_request():
    driven = DrivenSession(RecordingExchange(needs_request_body=False))
    driven.receive(request_headers(), request_body(b"one"), response_headers("400", end=True))
    assert driven.exchange.endings == [Ending.NATURAL]
    assert driven.receive(request_body(b"two")) == [StreamBody(False, b"two", False)]
    assert driven.receive(request_trailers()) == [AnswerTrailers(False)]


# -- what the exchange sees -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "seen"),
    [
        ("200", 200),
        ("503", 503),
        (None, 0),
        ("", 0),
        ("20", 0),
        ("2000", 0),
        ("abc", 0),
        ("\u0662\u0660\u0660", 0),
    ],
)
def test_status_is_a_number_of_three_digits_or_nothing(status: str | None, seen: int):
    driven = answered(RecordingExchange())
    driven.receive(response_headers(status))
    assert driven.exchange.responses[0].status == seen


def test_exchange_that_does_not_observe_is_not_called_with_chunks():
    driven = answered(RecordingExchange(observes_response_body=False))
    driven.receive(response_headers(), response_body(b"a"), response_body(b"b", end=True))
    assert driven.exchange.chunks == []
    assert driven.exchange.endings == [Ending.NATURAL]


def test_exchange_can_stop_observing():
    driven = answered(RecordingExchange())
    driven.receive(response_headers(), response_body(b"a"))
    driven.exchange.observes_response_body = False
    driven.receive(response_body(b"b"), response_trailers())
    assert driven.exchange.chunks == [(b"a", False)]


# -- immediate responses ----------------------------------------------------------------------------------


def test_response_can_be_replaced_at_its_headers_and_nothing_is_said_after_that():
    driven = answered(RecordingExchange(response=REFUSE))
    assert driven.receive(response_headers()) == [REFUSE]
    assert driven.exchange.endings == [Ending.REJECTED]
    assert driven.receive(response_body(b"x", end=True), response_trailers(), request_trailers()) == []
    assert driven.receive(response_headers()) == []
    assert driven.exchange.chunks == []
    assert len(driven.exchange.responses) == 1


# -- streams that start with the response -----------------------------------------------------------------


@pytest.mark.parametrize("mode", list(BodyMode))
def test_stream_may_start_with_response_headers(mode: BodyMode):
    driven = DrivenSession(RecordingExchange())
    modes = Modes(BodyMode.NONE, mode)
    assert driven.receive(response_headers(modes=modes)) == [AnswerHeaders(True, PASS)]
    expected = StreamBody if mode is BodyMode.FULL_DUPLEX_STREAMED else AnswerBody
    assert kinds(driven.receive(response_body(b"x", end=True))) == [expected]
    assert driven.exchange.endings == [Ending.NATURAL]
    assert driven.exchange.requests == []


def test_stream_may_start_with_a_response_body_which_then_says_the_modes():
    driven = DrivenSession(RecordingExchange())
    modes = Modes(BodyMode.NONE, BodyMode.STREAMED)
    assert kinds(driven.receive(response_body(b"x", modes=modes))) == [AnswerBody]
    assert kinds(driven.receive(response_body(b"", end=True))) == [AnswerBody]
    assert driven.exchange.chunks == [(b"x", False), (b"", True)]
    assert driven.exchange.endings == [Ending.NATURAL]


def test_stream_may_consist_of_response_trailers():
    driven = DrivenSession(RecordingExchange())
    assert driven.receive(response_trailers()) == [AnswerTrailers(True)]
    assert driven.exchange.endings == [Ending.NATURAL]


# -- a response that overtakes the decision ---------------------------------------------------------------


@pytest.mark.parametrize("mode", list(BodyMode))
def test_response_before_the_decision_voids_the_request(mode: BodyMode):
    driven = DrivenSession(RecordingExchange(decision=None))
    modes = Modes(mode, BodyMode.FULL_DUPLEX_STREAMED, body_without_waiting=True)
    driven.receive(request_headers(("content-length", "4"), modes=modes), request_body(b"some"))
    assert driven.session.is_waiting
    assert driven.receive(response_headers("413")) == [AnswerHeaders(True, PASS)]
    assert not driven.session.is_waiting
    assert driven.budget.used_bytes == 0
    assert driven.session.resume(ROUTE) == []
    assert driven.expire() == []
    assert driven.receive(request_body(b"", end=True), request_trailers()) == []
    assert driven.receive(response_body(b"no", end=True)) == [StreamBody(True, b"no", True)]
    assert driven.exchange.endings == [Ending.NATURAL]


def test_exchange_is_not_asked_about_a_request_whose_response_has_begun():
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(), request_body(b"some"), response_headers("504", end=True))
    driven.receive(request_body(b"", end=True))
    assert driven.exchange.requests == []
    assert [response.status for response in driven.exchange.responses] == [504]


def test_response_without_headers_voids_a_pending_decision_too():
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(end=True), response_body(b"late"))
    assert driven.resume(Reject(500)) == []


# -- what cannot come -------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [[], [response_body(b"x")], [response_body(b"x", end=True)]])
def test_second_set_of_response_headers_is_a_protocol_error(before):
    driven = answered(RecordingExchange())
    driven.receive(response_headers(), *before)
    with pytest.raises(ProtocolError, match="response headers after the response has begun"):
        driven.receive(response_headers())
    assert len(driven.exchange.responses) == 1


def test_second_set_of_response_trailers_is_a_protocol_error():
    driven = answered(RecordingExchange())
    driven.receive(response_headers(), response_trailers())
    with pytest.raises(ProtocolError, match="second set of response trailers"):
        driven.receive(response_trailers())
