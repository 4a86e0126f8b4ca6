"""What several reporters say, and what a failing one costs."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from dataplane.payload.token_usage import Usage
from dataplane.plugin.base import TypedName
from epp.interfaces.request import InferenceRequest
from epp.metrics import EppMetrics
from epp.plugin_failures import LOG_INTERVAL_S, PluginFailures
from epp.reporting import ResponseReporting
from tests.support.clock import ManualClock
from tests.support.pool import make_request, make_table


class Says:
    """Says the same of every response; an exception is raised."""

    def __init__(self, what: Mapping[str, Mapping[str, Any]] | Exception | None) -> None:
        self.name = TypedName("says", "says")
        self._what = what

    def report_response(
        self, request: InferenceRequest, usage: Usage | None
    ) -> Mapping[str, Mapping[str, Any]] | None:
        if isinstance(self._what, Exception):
            raise self._what
        return self._what


def reporting_of(
    clock: ManualClock, *what: Mapping[str, Mapping[str, Any]] | Exception | None
) -> ResponseReporting:
    failures = PluginFailures(EppMetrics(make_table(1), "pool"), clock)
    return ResponseReporting([Says(each) for each in what], None, failures)


def report(*what: Mapping[str, Mapping[str, Any]] | Exception | None) -> Any:
    return reporting_of(ManualClock(), *what).report(make_request(), Usage())


def test_values_are_joined_and_later_ones_win():
    assert report({"a": {"x": 1, "y": 1}}, {"a": {"y": 2}, "b": {"z": 3}}) == {
        "a": {"x": 1, "y": 2},
        "b": {"z": 3},
    }


def test_nothing_to_say_is_none():
    assert report(None, {}) is None


def test_a_failing_reporter_costs_its_own_values_only_and_is_logged_now_and_then(
    caplog: pytest.LogCaptureFixture,
):
    clock = ManualClock()
    reporting = reporting_of(clock, LookupError("x"), {"a": {"x": 1}})
    for _ in range(3):
        assert reporting.report(make_request(), None) == {"a": {"x": 1}}
    clock.advance(LOG_INTERVAL_S)
    assert reporting.report(make_request(), None) == {"a": {"x": 1}}
    with_counts = [r.getMessage().rpartition("; ")[2] for r in caplog.records if r.levelno == logging.ERROR]
    assert with_counts == ["0 failures not logged", "2 failures not logged"]
