"""Sizes and caps of a session: bytes arrive identical in small answers, and nothing grows past its limit."""

import json

import pytest

from dataplane.errors import BadRequestError
from dataplane.extproc.collected import CHUNK_OVERHEAD_BYTES, BodyBudget
from dataplane.extproc.events import AnswerHeaders, BodyMode, Modes, Reject, StreamBody
from dataplane.extproc.exchange import Ending
from tests.support.exchanges import (
    ROUTE,
    DrivenSession,
    RecordingExchange,
    ends,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    streamed,
)

MIB = 1024 * 1024
SIZES = [0, 1, 61_999, 62_000, 62_001, 65_536, 124_000, 124_001, 4 * MIB - 1, 4 * MIB + 1, 10 * MIB]
PATTERN = bytes(range(256)) * 4099


def body_of(size: int) -> bytes:
    return (PATTERN * (size // len(PATTERN) + 1))[:size]


def chunks_of(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


def rejected(effects) -> dict:
    """Status and error of the one rejection there is."""
    (reject,) = effects
    assert isinstance(reject, Reject)
    return {"status": reject.status, **json.loads(reject.body)["error"], "headers": dict(reject.headers)}


# -- sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [16_384, MIB], ids=["16 KiB chunks", "1 MiB chunks"])
@pytest.mark.parametrize("size", SIZES)
def test_request_body_of_any_size_arrives_identical_in_small_answers(size: int, chunk: int):
    body = body_of(size)
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(), *(request_body(piece) for piece in chunks_of(body, chunk)))
    effects = driven.receive(request_body(b"", end=True))
    assert driven.exchange.requests[0].body == body
    assert streamed(effects) == body
    assert ends(effects) == 1
    assert effects[0] == AnswerHeaders(False, ROUTE)
    assert effects[-1].end_of_stream
    assert max(len(effect.body) for effect in effects[1:]) <= 62_000
    assert len(effects) == 1 + max(1, -(-size // 62_000))


@pytest.mark.parametrize("size", SIZES)
def test_response_body_of_any_size_passes_identical_in_small_answers(size: int):
    body = body_of(size)
    driven = DrivenSession(RecordingExchange())
    driven.receive(request_headers(end=True), response_headers())
    effects = driven.receive(response_body(body, end=True))
    assert streamed(effects, response=True) == body
    assert [effect.end_of_stream for effect in effects] == [False] * (len(effects) - 1) + [True]
    assert max(len(effect.body) for effect in effects) <= 62_000
    assert driven.exchange.chunks == [(body, True)]


def test_large_chunk_of_a_passing_request_is_split_without_an_end():
    driven = DrivenSession(RecordingExchange(needs_request_body=False))
    driven.receive(request_headers())
    assert driven.receive(request_body(b"x" * 62_001)) == [
        StreamBody(False, b"x" * 62_000, False),
        StreamBody(False, b"x", False),
    ]


# -- the cap on one body ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mode", [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL, BodyMode.STREAMED]
)
def test_body_of_the_cap_is_taken_and_one_byte_more_is_refused(mode: BodyMode):
    modes = Modes(mode, mode, body_without_waiting=True)
    driven = DrivenSession(RecordingExchange(), max_body_bytes=1000)
    driven.receive(request_headers(modes=modes), request_body(b"x" * 1000, end=True))
    assert driven.exchange.requests[0].body == b"x" * 1000

    driven = DrivenSession(RecordingExchange(), max_body_bytes=1000)
    driven.receive(request_headers(modes=modes))
    error = rejected(driven.receive(request_body(b"x" * 1001, end=True)))
    assert error["status"] == 413
    assert error["message"] == "the request body is larger than the 1000 bytes allowed"
    assert error["type"] == "invalid_request_error"
    assert error["code"] == "request_too_large"
    assert error["headers"]["content-type"] == b"application/json"
    assert driven.exchange.requests == []
    assert driven.exchange.endings == [Ending.REJECTED]
    assert driven.budget.used_bytes == 0


def test_cap_counts_all_chunks():
    driven = DrivenSession(RecordingExchange(), max_body_bytes=1000)
    driven.receive(request_headers(), *(request_body(b"x" * 100) for _ in range(10)))
    assert driven.effects == []
    assert rejected(driven.receive(request_body(b"x")))["status"] == 413
    assert driven.receive(request_body(b"", end=True)) == []


def test_a_rejection_of_the_session_is_told_and_one_of_the_exchange_is_not():
    driven = DrivenSession(RecordingExchange(), max_body_bytes=10)
    driven.receive(request_headers(), request_body(b"x" * 11))
    assert driven.rejections == ["PayloadTooLarge"]
    broken = DrivenSession(RecordingExchange(LookupError("gone")))
    broken.receive(request_headers(), request_body(b"x", end=True))
    assert broken.rejections == ["Internal"]
    late = DrivenSession(RecordingExchange())
    late.receive(request_headers())
    late.expire()
    assert late.rejections == ["DeadlineExceeded"]
    refused = DrivenSession(RecordingExchange(BadRequestError("no")))
    refused.receive(request_headers(), request_body(b"x", end=True))
    assert refused.rejections == []


def test_cap_holds_while_a_decision_is_waited_for():
    driven = DrivenSession(RecordingExchange(decision=None, needs_request_body=False), max_body_bytes=1000)
    driven.receive(request_headers(), request_body(b"x" * 1000))
    assert driven.effects == []
    assert rejected(driven.receive(request_body(b"x")))["status"] == 413
    assert driven.resume(ROUTE) == []
    assert driven.exchange.endings == [Ending.REJECTED]


@pytest.mark.parametrize(
    ("length", "refused"),
    [("1000", False), ("1001", True), ("", False), ("-5", False), ("1e9", False), ("٣٣٣٣٣٣", False)],
)
def test_announced_body_past_the_cap_is_refused_before_it_comes(length: str, refused: bool):
    driven = DrivenSession(RecordingExchange(), max_body_bytes=1000)
    effects = driven.receive(request_headers(("content-length", length)))
    assert (effects != []) is refused
    if refused:
        assert rejected(effects)["status"] == 413


def test_absurd_content_length_is_left_to_the_bytes_that_come():
    driven = DrivenSession(RecordingExchange(), max_body_bytes=1000)
    assert driven.receive(request_headers(("content-length", "9" * 5000))) == []
    driven.receive(request_body(b"x", end=True))
    assert driven.exchange.requests[0].body == b"x"


def test_passing_body_has_no_cap():
    driven = DrivenSession(RecordingExchange(needs_request_body=False), max_body_bytes=10)
    driven.receive(request_headers(("content-length", "40")))
    effects = driven.receive(*(request_body(b"x" * 20) for _ in range(2)))
    assert streamed(effects) == b"x" * 40


# -- the budget of all bodies -----------------------------------------------------------------------------


def test_bodies_share_a_budget_and_give_it_back():
    budget = BodyBudget(2 * (1000 + CHUNK_OVERHEAD_BYTES))
    first, second, third = (DrivenSession(RecordingExchange(), budget=budget) for _ in range(3))
    for driven in (first, second, third):
        driven.receive(request_headers())
    first.receive(request_body(b"x" * 1000))
    second.receive(request_body(b"x" * 1000))
    assert budget.used_bytes == budget.limit_bytes
    error = rejected(third.receive(request_body(b"x")))
    assert error["status"] == 503
    assert error["headers"]["retry-after"] == b"1"
    assert error["headers"]["x-llm-d-request-dropped-reason"] == b"rejected-saturated"
    assert budget.used_bytes == budget.limit_bytes
    first.receive(request_body(b"", end=True))
    assert streamed(first.effects) == b"x" * 1000
    assert budget.used_bytes == 1000 + CHUNK_OVERHEAD_BYTES
    second.close()
    assert budget.used_bytes == 0


def test_tiny_chunks_are_charged_for_what_they_cost():
    budget = BodyBudget(10 * (2 + CHUNK_OVERHEAD_BYTES))
    driven = DrivenSession(RecordingExchange(), budget=budget)
    driven.receive(request_headers(), *(request_body(b"xy") for _ in range(10)))
    assert driven.effects == []
    assert rejected(driven.receive(request_body(b"x")))["status"] == 503
    assert budget.used_bytes == 0


def test_empty_chunks_cost_nothing():
    budget = BodyBudget(0)
    driven = DrivenSession(RecordingExchange(), budget=budget)
    driven.receive(request_headers(), *(request_body(b"") for _ in range(100)), request_trailers())
    assert driven.exchange.requests[0].body == b""


def test_passing_bodies_use_no_budget():
    budget = BodyBudget(0)
    driven = DrivenSession(RecordingExchange(needs_request_body=False), budget=budget)
    driven.receive(request_headers(), request_body(b"x" * 1000, end=True))
    driven.receive(response_headers(), response_body(b"x" * 1000, end=True))
    assert streamed(driven.effects) == b"x" * 1000
    assert streamed(driven.effects, response=True) == b"x" * 1000


@pytest.mark.parametrize("how", ["answer", "late answer", "rejection", "deadline", "disconnect", "overtaken"])
def test_budget_is_given_back_however_the_request_is_settled(how: str):
    decision = {"answer": ROUTE, "rejection": Reject(429)}.get(how)
    driven = DrivenSession(RecordingExchange(decision=decision))
    driven.receive(request_headers(), request_body(b"x" * 1000))
    assert driven.budget.used_bytes == 1000 + CHUNK_OVERHEAD_BYTES
    driven.receive(request_body(b"", end=True))
    if how == "late answer":
        driven.resume(ROUTE)
    elif how == "deadline":
        driven.expire()
    elif how == "disconnect":
        driven.close()
    elif how == "overtaken":
        driven.receive(response_headers("504", end=True))
    assert driven.budget.used_bytes == 0
    driven.close()
    assert driven.budget.used_bytes == 0
