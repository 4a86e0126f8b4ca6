"""Who is to blame for what a response looks like."""

from __future__ import annotations

import pytest

from dataplane.headers import Headers
from epp.resilience.outcomes import Verdict, is_failure, judge
from tests.support.pool import make_table

A, B, C = make_table(3).all().endpoints
PLAIN = Headers.of([])


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529])
def test_server_errors_are_failures(status: int) -> None:
    assert is_failure(status, PLAIN)


@pytest.mark.parametrize("status", [200, 400, 404, 429, 499, 501, 505])
def test_what_speaks_of_the_request_or_of_load_is_no_failure(status: int) -> None:
    assert not is_failure(status, PLAIN)


@pytest.mark.parametrize(("code", "fails"), [(code, code in {2, 13, 14, 15}) for code in range(18)])
def test_a_grpc_call_fails_by_the_status_in_its_head(code: int, fails: bool) -> None:
    headers = Headers.of([("content-type", "application/grpc"), ("grpc-status", str(code))])
    assert is_failure(200, headers) is fails
    assert judge([A], A, 200, headers, told=True) == Verdict((), A, fails)


def test_without_word_of_who_served_it_was_the_chosen_one() -> None:
    assert judge([A], None, 200, PLAIN, told=False) == Verdict((), A, False)
    assert judge([A, B], None, 503, PLAIN, told=False) == Verdict((), A, True)


def test_the_one_that_served_is_judged_and_those_named_before_it_failed() -> None:
    assert judge([A], A, 500, PLAIN, told=True) == Verdict((), A, True)
    assert judge([A, B, C], C, 200, PLAIN, told=True) == Verdict([A, B], C, False)
    assert judge([A, B], B, 503, PLAIN, told=True) == Verdict([A], B, True)


def test_when_it_served_from_elsewhere_all_that_were_named_failed() -> None:
    assert judge([A, B], C, 200, PLAIN, told=True) == Verdict([A, B], C, False)
    assert judge([A], None, 200, PLAIN, told=True) == Verdict([A], None, False)


def test_an_answer_that_does_not_tell_is_no_outcome() -> None:
    assert judge([A], A, 0, PLAIN, told=True) == Verdict((), A, None)
    overloaded = Headers.of([("x-envoy-overloaded", "true")])
    assert judge([A], A, 503, overloaded, told=True) == Verdict((), A, None)
