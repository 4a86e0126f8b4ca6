"""header-label-affinity-scorer: a label's value equals a header's."""

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.headers import Headers
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from epp.interfaces.request import InferenceRequest
from epp.plugins.scorers.header_label_affinity import HeaderLabelAffinityScorer
from tests.support.pool import make_plugin, make_request

PARAMETERS = {"headerName": "X-Tier", "labelKey": "tier"}


def table_of(*tiers: str) -> EndpointTable:
    """Endpoints with these values of the label ``tier``; empty = without it."""
    table = EndpointTable()
    for i, tier in enumerate(tiers):
        labels = {"tier": tier} if tier else {}
        table.add(EndpointSpec(f"e{i}", "default", f"10.0.0.{i + 1}", 8000, labels))
    return table


def asking(*values: str) -> InferenceRequest:
    request = make_request()
    request.headers = Headers.of([("x-tier", value) for value in values])
    return request


def test_equal_values_score_one_and_others_zero():
    table = table_of("gold", "silver", "", "gold")
    scorer = make_plugin(HeaderLabelAffinityScorer, table, PARAMETERS)
    assert scorer.score(asking("gold"), table.all()).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert scorer.score(asking("Gold"), table.all()).tolist() == [0.0] * 4
    assert scorer.score(asking("silver", "gold"), table.all()).tolist() == [0.0, 1.0, 0.0, 0.0]


def test_a_request_without_the_header_prefers_nobody():
    table = table_of("gold", "")
    scorer = make_plugin(HeaderLabelAffinityScorer, table, PARAMETERS)
    assert scorer.score(asking(), table.all()).tolist() == [0.0, 0.0]
    assert scorer.score(asking(""), table.all()).tolist() == [0.0, 0.0]


def test_candidates_that_filters_left_get_their_own_scores():
    table = table_of("gold", "silver", "gold")
    scorer = make_plugin(HeaderLabelAffinityScorer, table, PARAMETERS)
    narrowed = table.all().where(np.array([False, True, True]))
    assert scorer.score(asking("gold"), narrowed).tolist() == [0.0, 1.0]


def test_labels_that_change_and_endpoints_that_come_are_seen():
    table = table_of("gold", "silver")
    scorer = make_plugin(HeaderLabelAffinityScorer, table, PARAMETERS)
    assert scorer.score(asking("gold"), table.all()).tolist() == [1.0, 0.0]
    table.relabel("default/e1", EndpointSpec("e1", "default", "10.0.0.2", 8000, {"tier": "gold"}))
    for i in range(20):
        table.add(EndpointSpec(f"n{i}", "default", f"10.0.1.{i + 1}", 8000))
    assert scorer.score(asking("gold"), table.all()).tolist() == [1.0, 1.0] + [0.0] * 20


def test_both_parameters_are_required():
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(HeaderLabelAffinityScorer, None, None)
    assert [str(e) for e in caught.value.errors] == [
        "parameters.headerName: is required",
        "parameters.labelKey: is required",
    ]
    with pytest.raises(ConfigErrors, match=r"parameters\.labelKey: expected str of length >= 1"):
        make_plugin(HeaderLabelAffinityScorer, None, {"headerName": "x", "labelKey": ""})
