"""The request direction of a session, one test per rule: which answer comes when, in every body mode."""

import pytest

from dataplane.extproc.events import (
    AnswerBody,
    AnswerHeaders,
    AnswerTrailers,
    BodyMode,
    Modes,
    Proceed,
    Reject,
    StreamBody,
)
from dataplane.extproc.phases import ProtocolError
from tests.support.exchanges import (
    ROUTE,
    DrivenSession,
    RecordingExchange,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
)

ONE_MESSAGE = [BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL]
NOT_FULL_DUPLEX = [mode for mode in BodyMode if mode is not BodyMode.FULL_DUPLEX_STREAMED]
NOWAIT = Modes(BodyMode.STREAMED, BodyMode.STREAMED, body_without_waiting=True)


def is_unchanged(effect: AnswerHeaders | AnswerBody) -> bool:
    proceed = effect.proceed
    changes = (proceed.set_headers, proceed.remove_headers, proceed.metadata, proceed.clear_route_cache)
    return not any(changes)


class Note:
    """Metadata that is told apart by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def namespace(self, name: str) -> None:
        return None


# -- full duplex ------------------------------------------------------------------------------------------


def test_full_duplex_says_nothing_before_the_whole_body_and_then_headers_first():
    driven = DrivenSession(RecordingExchange())
    assert driven.receive(request_headers()) == []
    assert driven.receive(request_body(b"one ")) == []
    assert driven.receive(request_body(b"two")) == []
    assert driven.receive(request_body(b"", end=True)) == [
        AnswerHeaders(False, ROUTE),
        StreamBody(False, b"one two", True),
    ]
    assert driven.exchange.requests[0].body == b"one two"


def test_full_duplex_end_riding_on_data_is_forwarded_once():
    driven = DrivenSession(RecordingExchange())
    assert driven.receive(request_headers(), request_body(b"all", end=True)) == [
        AnswerHeaders(False, ROUTE),
        StreamBody(False, b"all", True),
    ]


def test_full_duplex_empty_body_is_one_empty_last_chunk():
    driven = DrivenSession(RecordingExchange())
    assert driven.receive(request_headers(), request_body(b"", end=True)) == [
        AnswerHeaders(False, ROUTE),
        StreamBody(False, b"", True),
    ]
    assert driven.exchange.requests[0].body == b""


@pytest.mark.parametrize("again", [b"", b"two"], ids=["empty", "with the last bytes repeated"])
def test_repeated_end_is_handled_once_and_keeps_the_stream_open(again: bytes):
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(), request_body(b"one "), request_body(b"two", end=True))
    assert driven.receive(request_body(again, end=True)) == []
    assert driven.effects == [AnswerHeaders(False, ROUTE), StreamBody(False, b"one two", True)]
    assert len(driven.exchange.requests) == 1
    assert driven.receive(response_headers()) != []


@pytest.mark.parametrize("again", [b"", b"two"], ids=["empty", "with the last bytes repeated"])
def test_repeated_end_while_deciding_is_not_part_of_the_body(again: bytes):
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(), request_body(b"one two", end=True))
    assert driven.receive(request_body(again, end=True)) == []
    assert driven.resume(ROUTE) == [AnswerHeaders(False, ROUTE), StreamBody(False, b"one two", True)]


def test_end_after_headers_that_ended_the_request_is_not_forwarded():
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(end=True), request_body(b"", end=True))
    assert driven.resume(ROUTE) == [AnswerHeaders(False, ROUTE)]


def test_deferred_decision_is_answered_when_it_comes():
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(), request_body(b"body", end=True))
    assert driven.effects == []
    assert driven.session.is_waiting
    assert driven.resume(ROUTE) == [AnswerHeaders(False, ROUTE), StreamBody(False, b"body", True)]
    assert not driven.session.is_waiting


def test_decision_before_the_end_forwards_what_came_and_passes_the_rest():
    driven = DrivenSession(RecordingExchange(decision=None, needs_request_body=False))
    driven.receive(request_headers(), request_body(b"one "))
    assert driven.resume(ROUTE) == [AnswerHeaders(False, ROUTE), StreamBody(False, b"one ", False)]
    assert driven.receive(request_body(b"two")) == [StreamBody(False, b"two", False)]
    assert driven.receive(request_body(b"", end=True)) == [StreamBody(False, b"", True)]
    assert driven.receive(request_body(b"", end=True)) == []


def test_exchange_without_need_of_the_body_is_asked_at_the_headers():
    driven = DrivenSession(RecordingExchange(needs_request_body=False))
    assert driven.receive(request_headers()) == [AnswerHeaders(False, ROUTE)]
    assert driven.exchange.requests[0].body is None
    assert driven.receive(request_body(b"chunk")) == [StreamBody(False, b"chunk", False)]


def test_resume_within_the_question_is_the_answer():
    class Hasty(RecordingExchange):
        def on_request(self, request, resume):
            super().on_request(request, resume)
            resume(ROUTE)
            return Proceed() if self.decision is ROUTE else None

    for decision in (None, ROUTE):
        driven = DrivenSession(Hasty(decision=decision))
        effects = driven.receive(request_headers(), request_body(b"body", end=True))
        assert effects == [AnswerHeaders(False, ROUTE), StreamBody(False, b"body", True)]


def test_second_resume_says_nothing():
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(end=True))
    assert driven.resume(ROUTE) == [AnswerHeaders(False, ROUTE)]
    assert driven.resume(Reject(500)) == []
    assert driven.exchange.endings == []


# -- header-only requests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(BodyMode))
@pytest.mark.parametrize("needs_body", [True, False])
def test_header_only_request_is_decided_on_an_empty_body_in_every_mode(mode: BodyMode, needs_body: bool):
    driven = DrivenSession(RecordingExchange(needs_request_body=needs_body))
    assert driven.receive(request_headers(end=True, modes=Modes(mode, mode))) == [AnswerHeaders(False, ROUTE)]
    assert driven.exchange.requests[0].body == b""


# -- trailers ---------------------------------------------------------------------------------------------


def test_full_duplex_trailers_end_the_body_and_are_answered_last():
    driven = DrivenSession(RecordingExchange())
    assert driven.receive(request_headers(), request_body(b"body")) == []
    assert driven.receive(request_trailers()) == [
        AnswerHeaders(False, ROUTE),
        StreamBody(False, b"body", False),
        AnswerTrailers(False),
    ]
    assert driven.receive(request_body(b"", end=True)) == []


@pytest.mark.parametrize("chunks", [[], [b""]], ids=["no chunk", "an empty chunk"])
def test_full_duplex_trailers_without_a_body_are_answered_after_the_headers(chunks: list[bytes]):
    driven = DrivenSession(RecordingExchange())
    effects = driven.receive(
        request_headers(), *(request_body(chunk) for chunk in chunks), request_trailers()
    )
    assert effects == [AnswerHeaders(False, ROUTE), AnswerTrailers(False)]
    assert driven.exchange.requests[0].body == b""


def test_full_duplex_trailers_while_deciding_wait_for_the_decision():
    driven = DrivenSession(RecordingExchange(decision=None, needs_request_body=False))
    driven.receive(request_headers(), request_body(b"body"), request_trailers(), request_body(b"", end=True))
    assert driven.effects == []
    assert len(driven.exchange.requests) == 1
    assert driven.resume(ROUTE) == [
        AnswerHeaders(False, ROUTE),
        StreamBody(False, b"body", False),
        AnswerTrailers(False),
    ]


def test_full_duplex_trailers_of_a_passing_body_are_answered():
    driven = DrivenSession(RecordingExchange(needs_request_body=False))
    driven.receive(request_headers(), request_body(b"body"))
    assert driven.receive(request_trailers()) == [AnswerTrailers(False)]
    assert driven.receive(request_body(b"", end=True)) == []


@pytest.mark.parametrize("mode", ONE_MESSAGE)
def test_buffered_trailers_follow_the_answered_body(mode: BodyMode):
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(("content-length", "4"), modes=Modes(mode, mode)))
    assert driven.receive(request_body(b"body")) == [AnswerBody(False, ROUTE)]
    assert driven.exchange.requests[0].body == b"body"
    assert driven.receive(request_trailers()) == [AnswerTrailers(False)]


@pytest.mark.parametrize("mode", ONE_MESSAGE)
def test_buffered_trailers_without_a_body_are_refused_because_the_headers_have_gone(mode: BodyMode):
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(modes=Modes(mode, mode)))
    (reject,) = driven.receive(request_trailers())
    assert isinstance(reject, Reject)
    assert reject.status == 400
    assert driven.exchange.requests == []


@pytest.mark.parametrize("mode", ONE_MESSAGE)
def test_buffered_trailers_while_deciding_on_headers_wait_for_the_decision(mode: BodyMode):
    driven = DrivenSession(RecordingExchange(decision=None, needs_request_body=False))
    driven.receive(request_headers(modes=Modes(mode, mode)), request_trailers())
    assert driven.resume(ROUTE) == [AnswerHeaders(False, ROUTE), AnswerTrailers(False)]


@pytest.mark.parametrize("mode", [BodyMode.NONE, BodyMode.STREAMED])
def test_trailers_of_an_unseen_body_are_answered(mode: BodyMode):
    driven = DrivenSession(RecordingExchange())
    assert driven.receive(request_headers(modes=Modes(mode, mode)), request_trailers()) == [
        AnswerHeaders(False, ROUTE),
        AnswerTrailers(False),
    ]


# -- the other body modes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ONE_MESSAGE)
def test_buffered_headers_go_on_and_the_body_answer_carries_the_decision(mode: BodyMode):
    driven = DrivenSession(RecordingExchange())
    (answer,) = driven.receive(request_headers(modes=Modes(mode, mode)))
    assert isinstance(answer, AnswerHeaders)
    assert is_unchanged(answer)
    assert driven.receive(request_body(b"body", end=True)) == [AnswerBody(False, ROUTE)]
    assert driven.exchange.requests[0].body == b"body"


@pytest.mark.parametrize("mode", ONE_MESSAGE)
def test_buffered_body_without_need_of_it_gets_one_unchanged_answer(mode: BodyMode):
    driven = DrivenSession(RecordingExchange(needs_request_body=False))
    assert driven.receive(request_headers(modes=Modes(mode, mode))) == [AnswerHeaders(False, ROUTE)]
    (answer,) = driven.receive(request_body(b"body", end=True))
    assert isinstance(answer, AnswerBody)
    assert is_unchanged(answer)


@pytest.mark.parametrize("mode", ONE_MESSAGE)
def test_buffered_decision_can_wait(mode: BodyMode):
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(modes=Modes(mode, mode)), request_body(b"body", end=True))
    assert len(driven.effects) == 1
    assert driven.resume(ROUTE) == [AnswerBody(False, ROUTE)]


@pytest.mark.parametrize(
    ("announced", "came"),
    [(("content-length", "10"), b"12345"), (("x-none", ""), b"12345")],
    ids=["less than announced", "nothing announced"],
)
def test_partial_body_is_never_decided_on(announced: tuple[str, str], came: bytes):
    mode = BodyMode.BUFFERED_PARTIAL
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(announced, modes=Modes(mode, mode)))
    (reject,) = driven.receive(request_body(came))
    assert isinstance(reject, Reject)
    assert reject.status == 413
    assert b"first 5 bytes" in reject.body
    assert driven.exchange.requests == []


def test_streamed_that_waits_for_headers_is_decided_without_the_body():
    driven = DrivenSession(RecordingExchange())
    assert driven.receive(request_headers(modes=Modes(BodyMode.STREAMED, BodyMode.STREAMED))) == [
        AnswerHeaders(False, ROUTE)
    ]
    assert driven.exchange.requests[0].body is None
    for end in (False, False, True):
        (answer,) = driven.receive(request_body(b"chunk", end=end))
        assert isinstance(answer, AnswerBody)
        assert is_unchanged(answer)


def test_streamed_without_waiting_is_decided_on_the_whole_body_and_each_chunk_answered():
    driven = DrivenSession(RecordingExchange())
    assert driven.receive(request_headers(modes=NOWAIT), request_body(b"one "), request_body(b"two")) == []
    headers, *bodies = driven.receive(request_body(b"", end=True))
    assert headers == AnswerHeaders(False, ROUTE)
    assert [type(body) for body in bodies] == [AnswerBody] * 3
    assert all(is_unchanged(body) for body in bodies if isinstance(body, AnswerBody))
    assert driven.exchange.requests[0].body == b"one two"


def test_streamed_without_waiting_answers_what_came_while_deciding():
    driven = DrivenSession(RecordingExchange(decision=None, needs_request_body=False))
    driven.receive(request_headers(modes=NOWAIT), request_body(b"one"), request_body(b"two", end=True))
    driven.receive(request_body(b"", end=True))
    assert [type(effect) for effect in driven.resume(ROUTE)] == [AnswerHeaders] + [AnswerBody] * 3


def test_streamed_without_waiting_ends_with_trailers():
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(modes=NOWAIT), request_body(b"body"))
    assert [type(effect) for effect in driven.receive(request_trailers())] == [
        AnswerHeaders,
        AnswerBody,
        AnswerTrailers,
    ]
    assert driven.exchange.requests[0].body == b"body"


@pytest.mark.parametrize("mode", NOT_FULL_DUPLEX)
def test_outside_full_duplex_a_repeated_end_gets_its_answer(mode: BodyMode):
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(modes=Modes(mode, mode, True)), request_body(b"body", end=True))
    assert [type(effect) for effect in driven.receive(request_body(b"", end=True))] == [AnswerBody]
    assert len(driven.exchange.requests) == 1


@pytest.mark.parametrize("mode", ONE_MESSAGE)
def test_buffered_messages_that_come_while_deciding_are_each_answered(mode: BodyMode):
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(modes=Modes(mode, mode)), request_body(b"body", end=True))
    driven.receive(request_body(b"", end=True))
    first, second = driven.resume(ROUTE)
    assert first == AnswerBody(False, ROUTE)
    assert isinstance(second, AnswerBody)
    assert is_unchanged(second)


def test_no_body_mode_is_decided_without_the_body():
    driven = DrivenSession(RecordingExchange())
    modes = Modes(BodyMode.NONE, BodyMode.NONE)
    assert driven.receive(request_headers(modes=modes)) == [AnswerHeaders(False, ROUTE)]
    assert driven.exchange.requests[0].body is None


def test_modes_of_a_proxy_that_does_not_say_them_are_the_default():
    modes = Modes(BodyMode.NONE, BodyMode.NONE)
    driven = DrivenSession(RecordingExchange(), default_modes=modes)
    assert driven.receive(request_headers(modes=None)) == [AnswerHeaders(False, ROUTE)]


# -- what the exchange sees -------------------------------------------------------------------------------


def test_newest_metadata_of_the_request_phase_is_what_the_exchange_sees():
    first, second, third = Note("headers"), Note("body"), Note("trailers")
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(metadata=first), request_body(b"x", metadata=second), request_body(b"y"))
    driven.receive(request_trailers(third))
    assert driven.exchange.requests[0].metadata is third

    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(metadata=first), request_body(b"x", metadata=second))
    driven.receive(request_body(b"", end=True))
    assert driven.exchange.requests[0].metadata is second

    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(metadata=first), request_body(b"x", end=True))
    assert driven.exchange.requests[0].metadata is first


def test_single_chunk_is_neither_copied_for_the_exchange_nor_for_the_upstream():
    body = b"x" * 1000
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(), request_body(body), request_body(b"", end=True))
    assert driven.exchange.requests[0].body is body
    assert driven.effects[1].body is body


# -- what cannot come -------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [request_body(b"x"), request_body(b"", end=True), request_trailers()])
def test_request_that_does_not_start_with_headers_is_a_protocol_error(event):
    with pytest.raises(ProtocolError):
        DrivenSession(RecordingExchange()).receive(event)


@pytest.mark.parametrize("decision", [ROUTE, None], ids=["decided", "waiting"])
@pytest.mark.parametrize("mode", list(BodyMode))
def test_second_set_of_request_headers_is_a_protocol_error(decision: Proceed | None, mode: BodyMode):
    driven = DrivenSession(RecordingExchange(decision=decision))
    driven.receive(request_headers(modes=Modes(mode, mode)))
    with pytest.raises(ProtocolError, match="second set of request headers"):
        driven.receive(request_headers())


@pytest.mark.parametrize("decision", [ROUTE, None], ids=["decided", "waiting"])
def test_second_set_of_request_trailers_is_a_protocol_error(decision: Proceed | None):
    driven = DrivenSession(RecordingExchange(decision=decision))
    driven.receive(request_headers(), request_body(b"x"), request_trailers())
    with pytest.raises(ProtocolError, match="second set of request trailers"):
        driven.receive(request_trailers())


@pytest.mark.parametrize("first", [response_headers(), response_body(b"x")], ids=["headers", "body"])
def test_request_headers_after_the_response_has_begun_are_a_protocol_error(first):
    driven = DrivenSession(RecordingExchange())
    driven.receive(first)
    with pytest.raises(ProtocolError, match="after the response has begun"):
        driven.receive(request_headers())
