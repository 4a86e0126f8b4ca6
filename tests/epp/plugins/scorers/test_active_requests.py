"""active-request-scorer: fewer requests in flight score higher; no metrics are needed."""

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from epp.interfaces.attributes import INFLIGHT_LOAD, InflightLoad
from epp.interfaces.endpoint import EndpointTable
from epp.plugins.scorers.active_requests import ActiveRequestsScorer
from tests.support.pool import make_plugin, make_request, make_table


def scores(table: EndpointTable, requests: list[float], **parameters: float) -> list[float]:
    """Scores of all endpoints when so many requests are in flight."""
    candidates, request = table.all(), make_request()
    counts = np.array(requests)
    request.put(INFLIGHT_LOAD, InflightLoad(candidates, counts, counts * 100))
    return make_plugin(ActiveRequestsScorer, table, parameters).score(request, candidates).tolist()


def test_idle_scores_one_and_the_busiest_zero():
    assert scores(make_table(3), [0, 5, 10]) == [1.0, 0.5, 0.0]


def test_few_requests_may_count_as_idle():
    assert scores(make_table(3), [2, 3, 4], idleThreshold=2) == [1.0, 0.25, 0.0]


def test_busy_endpoints_can_be_kept_below_a_score():
    assert scores(make_table(3), [0, 5, 10], maxBusyScore=0.5) == [1.0, 0.25, 0.0]


def test_equal_one_and_no_endpoints():
    assert scores(make_table(2), [0, 0]) == [1.0, 1.0]
    assert scores(make_table(2), [3, 3]) == [0.0, 0.0]
    assert scores(make_table(1), [3]) == [0.0]
    assert scores(make_table(0), []) == []


def test_without_the_ledger_nobody_is_preferred():
    table = make_table(2)
    scorer = make_plugin(ActiveRequestsScorer, table)
    assert scorer.score(make_request(), table.all()).tolist() == [0.0, 0.0]


def test_the_ledger_is_read_for_candidates_that_filters_left():
    table = make_table(3)
    request = make_request()
    request.put(INFLIGHT_LOAD, InflightLoad(table.all(), np.array([0.0, 8.0, 4.0]), np.zeros(3)))
    narrowed = table.all().where(np.array([False, True, True]))
    assert make_plugin(ActiveRequestsScorer, table).score(request, narrowed).tolist() == [0.0, 0.5]


def test_a_named_ledger_is_read_instead_of_the_default_one():
    table = make_table(2)
    scorer = make_plugin(ActiveRequestsScorer, table, {"inFlightLoadProducerName": "mine"})
    assert list(scorer.consumes) == [INFLIGHT_LOAD.by("mine")]
    default = make_plugin(ActiveRequestsScorer, table, {"inFlightLoadProducerName": "inflight-load-producer"})
    assert list(default.consumes) == [INFLIGHT_LOAD]


def test_the_deprecated_timeout_is_accepted_with_a_warning():
    scorer = make_plugin(ActiveRequestsScorer, make_table(1), {"requestTimeout": "5m"})
    assert scorer.warnings == ["requestTimeout is deprecated and has no effect"]
    assert make_plugin(ActiveRequestsScorer, make_table(1)).warnings == []


def test_impossible_parameters_are_refused_together():
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(ActiveRequestsScorer, make_table(1), {"idleThreshold": -1, "maxBusyScore": 2})
    assert [str(error) for error in caught.value.errors] == [
        "parameters.idleThreshold: expected int >= 0",
        "parameters.maxBusyScore: expected float <= 1.0",
    ]
