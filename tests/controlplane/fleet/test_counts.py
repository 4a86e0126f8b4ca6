"""Requests and errors for the guard of a rollout."""

from __future__ import annotations

import pytest

from controlplane.fleet.local.counts import Counts, Since, read_counts

PAGE = """
# HELP llm_d_epp_request_total Requests that were given an endpoint.
llm_d_epp_request_total{model_name="a",priority="0"} 5
llm_d_epp_request_total{model_name="error_code=\\"Internal\\"",priority="0"} 3.0
llm_d_epp_request_error_total{model_name="a",error_code="ModelServerError"} 2
llm_d_epp_request_error_total{model_name="a",error_code="ServiceUnavailable"} 4
llm_d_epp_request_error_total{model_name="error_code=",error_code="BadRequest"} 9
llm_d_epp_request_running{model_name="a"} 7
"""


def test_what_the_sender_did_wrong_does_not_count() -> None:
    assert read_counts(PAGE) == Counts(5 + 3 + 4, 2 + 4)
    assert read_counts("") == Counts(0, 0)
    with pytest.raises(ValueError, match="many"):
        read_counts("llm_d_epp_request_total{} many")


def test_counting_begins_with_what_is_counted_and_goes_on_over_restarts() -> None:
    since = Since()
    assert since.count("r1", 7, Counts(100, 50)) == Counts(0, 0)
    assert since.count("r1", 7, Counts(130, 51)) == Counts(30, 1)
    assert since.count("r1", 8, Counts(4, 2)) == Counts(34, 3)
    assert since.count("r1", 8, Counts(5, 2)) == Counts(35, 3)
    assert since.count("r2", 8, Counts(6, 2)) == Counts(0, 0)
    assert since.count("r2", 8, Counts(9, 3)) == Counts(3, 1)
