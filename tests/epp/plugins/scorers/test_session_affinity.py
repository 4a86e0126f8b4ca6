"""session-affinity-scorer: 1 for the session's endpoint, 0 for all others."""

import numpy as np
import pytest

from dataplane.headers import Headers
from epp.interfaces.request import InferenceRequest
from epp.plugins.scorers.session_affinity import SessionAffinityScorer
from epp.plugins.session_affinity import encode_token
from tests.support.pool import make_plugin, make_request, make_table


def asking(token: str) -> InferenceRequest:
    request = make_request()
    request.headers = Headers.of([("x-session-token", token)] if token else [])
    return request


def test_the_sessions_endpoint_scores_one():
    table = make_table(3)
    plugin = make_plugin(SessionAffinityScorer, table)
    assert plugin.score(asking(encode_token("default/e1")), table.all()).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("token", ["", "garbage", encode_token("default/gone")])
def test_without_a_present_endpoint_nobody_is_preferred(token: str):
    table = make_table(2)
    assert make_plugin(SessionAffinityScorer, table).score(asking(token), table.all()).tolist() == [0.0, 0.0]


def test_candidates_that_filters_left_get_their_own_scores():
    table = make_table(3)
    narrowed = table.all().where(np.array([True, False, True]))
    plugin = make_plugin(SessionAffinityScorer, table)
    assert plugin.score(asking(encode_token("default/e2")), narrowed).tolist() == [0.0, 1.0]
    assert plugin.score(asking(encode_token("default/e1")), narrowed).tolist() == [0.0, 0.0]
