"""How a session ends: rejections at every point, deadline, disconnect, defects; ``on_end`` exactly once."""

import json

import pytest

from dataplane.errors import NotFoundError, ResourceExhaustedError
from dataplane.extproc.events import AnswerBody, AnswerHeaders, BodyMode, Modes, Reject, StreamBody
from dataplane.extproc.exchange import Ending
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

LATER = [
    request_body(b"x"),
    request_body(b"", end=True),
    request_trailers(),
    request_headers(),
    response_headers(),
    response_body(b"x", end=True),
    response_trailers(),
]
FULL = BodyMode.FULL_DUPLEX_STREAMED


def assert_silent(driven: DrivenSession) -> None:
    """Whatever still comes is neither answered nor shown to the exchange."""
    shown = (len(driven.exchange.requests), len(driven.exchange.responses), len(driven.exchange.chunks))
    assert driven.receive(*LATER) == []
    assert driven.expire() == []
    assert driven.session.resume(ROUTE) == []
    assert shown == (
        len(driven.exchange.requests),
        len(driven.exchange.responses),
        len(driven.exchange.chunks),
    )
    assert driven.budget.used_bytes == 0


# -- immediate responses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(BodyMode))
def test_rejection_at_the_headers_is_the_only_answer(mode: BodyMode):
    driven = DrivenSession(RecordingExchange(decision=REFUSE, needs_request_body=False))
    assert driven.receive(request_headers(modes=Modes(mode, mode))) == [REFUSE]
    assert driven.exchange.endings == [Ending.REJECTED]
    assert_silent(driven)


@pytest.mark.parametrize("mode", [BodyMode.STREAMED, BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL, FULL])
def test_rejection_at_the_end_of_the_body(mode: BodyMode):
    driven = DrivenSession(RecordingExchange(decision=REFUSE))
    driven.receive(request_headers(modes=Modes(mode, mode, True)))
    assert driven.receive(request_body(b"body", end=True)) == [REFUSE]
    assert driven.exchange.endings == [Ending.REJECTED]
    assert_silent(driven)


def test_rejection_at_trailers():
    driven = DrivenSession(RecordingExchange(decision=REFUSE))
    assert driven.receive(request_headers(), request_body(b"body"), request_trailers()) == [REFUSE]
    assert_silent(driven)


def test_late_rejection():
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(), request_body(b"body", end=True))
    assert driven.resume(REFUSE) == [REFUSE]
    assert driven.exchange.endings == [Ending.REJECTED]
    assert_silent(driven)


def test_request_error_becomes_a_json_rejection():
    error = NotFoundError('model "gpt-9" does not exist', param="model")
    driven = DrivenSession(RecordingExchange(decision=error))
    (reject,) = driven.receive(request_headers(end=True))
    assert isinstance(reject, Reject)
    assert reject.status == 404
    assert list(reject.headers) == [("content-type", b"application/json")]
    assert reject.details == "pointsman_NotFound"
    assert json.loads(reject.body) == {
        "error": {
            "message": 'model "gpt-9" does not exist',
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    assert driven.exchange.endings == [Ending.REJECTED]
    assert driven.defects == []


def test_request_error_in_the_response_phase_replaces_the_response():
    driven = DrivenSession(RecordingExchange(response=ResourceExhaustedError("slow down")))
    driven.receive(request_headers(end=True))
    (reject,) = driven.receive(response_headers())
    assert isinstance(reject, Reject)
    assert reject.status == 429
    assert ("retry-after", b"1") in reject.headers
    assert driven.exchange.endings == [Ending.REJECTED]
    assert_silent(driven)


# -- deadline ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [BodyMode.STREAMED, BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL, FULL])
def test_deadline_while_the_body_is_coming(mode: BodyMode):
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(modes=Modes(mode, mode, True)))
    assert driven.session.is_waiting
    (reject,) = driven.expire()
    assert isinstance(reject, Reject)
    assert reject.status == 504
    assert json.loads(reject.body)["error"]["type"] == "timeout_error"
    assert driven.exchange.endings == [Ending.DEADLINE]
    assert driven.exchange.requests == []
    assert_silent(driven)


def test_deadline_while_deciding_makes_the_decision_too_late():
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(), request_body(b"body", end=True))
    (reject,) = driven.expire()
    assert isinstance(reject, Reject)
    assert driven.resume(ROUTE) == []
    assert driven.exchange.endings == [Ending.DEADLINE]
    assert_silent(driven)


def test_deadline_after_the_answer_changes_nothing():
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(), request_body(b"body", end=True))
    assert driven.expire() == []
    assert driven.exchange.endings == []
    assert driven.receive(response_headers()) == [AnswerHeaders(True, PASS)]


def test_deadline_before_the_first_message_changes_nothing():
    driven = DrivenSession(RecordingExchange())
    assert driven.expire() == []
    assert driven.exchange.endings == []


# -- end of the stream ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([], Ending.DISCONNECT),
        ([request_headers()], Ending.DISCONNECT),
        ([request_headers(), request_body(b"x")], Ending.DISCONNECT),
        ([request_headers(end=True)], Ending.DISCONNECT),
        ([request_headers(end=True), response_headers()], Ending.DISCONNECT),
        ([request_headers(end=True), response_headers(), response_body(b"x")], Ending.DISCONNECT),
        ([request_headers(end=True), response_headers(), response_body(b"x", end=True)], Ending.NATURAL),
        ([request_headers(end=True), response_headers(end=True)], Ending.NATURAL),
        ([request_headers(end=True), response_headers(), response_trailers()], Ending.NATURAL),
        ([response_headers()], Ending.DISCONNECT),
        ([request_headers(("content-length", "99999999"))], Ending.REJECTED),
    ],
)
def test_closing_says_how_the_exchange_ended(events, ending: Ending):
    driven = DrivenSession(RecordingExchange(), max_body_bytes=1000)
    driven.receive(*events)
    driven.close()
    driven.close()
    assert driven.exchange.endings == [ending]
    assert_silent(driven)
    assert driven.exchange.endings == [ending]


@pytest.mark.parametrize("mode", list(BodyMode))
def test_answered_request_is_the_end_when_responses_are_not_processed(mode: BodyMode):
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(modes=Modes(mode, BodyMode.NONE, True)))
    if mode is not BodyMode.NONE:
        driven.receive(request_body(b"x", end=True))
    driven.close()
    assert driven.exchange.endings == [Ending.NATURAL]


def test_client_that_leaves_within_a_passing_body_is_a_disconnect_even_without_response_processing():
    driven = DrivenSession(RecordingExchange(needs_request_body=False))
    driven.receive(request_headers(modes=Modes(FULL, BodyMode.NONE)), request_body(b"x"))
    driven.close()
    assert driven.exchange.endings == [Ending.DISCONNECT]


def test_waiting_request_that_is_closed_without_response_processing_is_a_disconnect():
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(end=True, modes=Modes(FULL, BodyMode.NONE)))
    driven.close()
    assert driven.exchange.endings == [Ending.DISCONNECT]


def test_reason_of_the_driver_wins():
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(end=True))
    driven.close(Ending.ERROR)
    assert driven.exchange.endings == [Ending.ERROR]


def test_decision_after_the_client_left_says_nothing():
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(), request_body(b"body", end=True))
    driven.close()
    assert driven.exchange.endings == [Ending.DISCONNECT]
    assert driven.resume(ROUTE) == []
    assert driven.resume(REFUSE) == []
    assert driven.exchange.endings == [Ending.DISCONNECT]
    assert_silent(driven)


# -- defects of exchanges ---------------------------------------------------------------------------------


def test_defect_in_the_decision_costs_one_request():
    defect = KeyError("model")
    driven = DrivenSession(RecordingExchange(decision=defect))
    (reject,) = driven.receive(request_headers(), request_body(b"body", end=True))
    assert isinstance(reject, Reject)
    assert reject.status == 500
    assert b"KeyError" not in reject.body
    assert driven.defects == [defect]
    assert driven.exchange.endings == [Ending.ERROR]
    assert_silent(driven)


def test_a_late_error_of_the_request_is_its_rejection():
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(), request_body(b"body", end=True))
    (reject,) = driven.resume(NotFoundError("no such model", param="model"))
    assert isinstance(reject, Reject)
    assert (reject.status, driven.defects) == (404, [])
    assert driven.exchange.endings == [Ending.REJECTED]
    assert_silent(driven)


def test_a_late_defect_costs_one_request():
    defect = KeyError("model")
    driven = DrivenSession(RecordingExchange(decision=None))
    driven.receive(request_headers(), request_body(b"body", end=True))
    (reject,) = driven.resume(defect)
    assert isinstance(reject, Reject)
    assert (reject.status, driven.defects) == (500, [defect])
    assert driven.exchange.endings == [Ending.ERROR]
    assert driven.resume(defect) == []
    assert driven.defects == [defect]


def test_defect_after_a_resume_does_not_change_the_answer():
    class Broken(RecordingExchange):
        def on_request(self, request, resume):
            resume(ROUTE)
            raise KeyError("late")

    driven = DrivenSession(Broken())
    assert driven.receive(request_headers(end=True)) == [AnswerHeaders(False, ROUTE)]
    assert [repr(defect) for defect in driven.defects] == ["KeyError('late')"]
    assert driven.exchange.endings == []


def test_defect_at_response_headers_does_not_cost_the_response():
    defect = ValueError("status")
    driven = DrivenSession(RecordingExchange(response=defect))
    driven.receive(request_headers(end=True))
    (answer,) = driven.receive(response_headers())
    assert isinstance(answer, AnswerHeaders)
    assert not answer.proceed.set_headers
    assert driven.receive(response_body(b"x", end=True)) == [StreamBody(True, b"x", True)]
    assert driven.defects == [defect]
    assert driven.exchange.endings == [Ending.NATURAL]


@pytest.mark.parametrize("mode", [FULL, BodyMode.STREAMED])
def test_defect_in_a_chunk_is_reported_once_and_ends_the_watching(mode: BodyMode):
    defect = ValueError("chunk")
    driven = DrivenSession(RecordingExchange(on_chunk=defect))
    driven.receive(request_headers(end=True, modes=Modes(FULL, mode)), response_headers())
    for chunk, end in ((b"a", False), (b"b", False), (b"", True)):
        (answer,) = driven.receive(response_body(chunk, end))
        assert isinstance(answer, StreamBody if mode is FULL else AnswerBody)
    assert driven.defects == [defect]
    assert driven.exchange.chunks == [(b"a", False)]
    assert driven.exchange.endings == [Ending.NATURAL]


def test_defect_at_the_end_is_reported():
    defect = RuntimeError("end")
    driven = DrivenSession(RecordingExchange(decision=REFUSE, on_end=defect))
    assert driven.receive(request_headers(end=True)) == [REFUSE]
    driven.close()
    assert driven.defects == [defect]
    assert driven.exchange.endings == [Ending.REJECTED]


def test_exchange_may_resume_while_it_is_told_the_end():
    class Clinging(RecordingExchange):
        def on_end(self, ending):
            super().on_end(ending)
            self.resume(ROUTE)

    driven = DrivenSession(Clinging(decision=None))
    driven.receive(request_headers(end=True))
    driven.close()
    assert driven.effects == []
    assert driven.exchange.endings == [Ending.DISCONNECT]

    driven = DrivenSession(Clinging(decision=None))
    driven.receive(request_headers(end=True))
    assert [type(effect) for effect in driven.expire()] == [Reject]
    assert [type(effect) for effect in driven.effects] == [Reject]
