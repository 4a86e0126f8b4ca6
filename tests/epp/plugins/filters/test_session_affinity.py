"""session-affinity-filter: the session's endpoint and no other, or all of them."""

import numpy as np
import pytest

from dataplane.headers import Headers
from epp.interfaces.endpoint import Candidates
from epp.interfaces.request import InferenceRequest
from epp.plugins.filters.session_affinity import SessionAffinityFilter
from epp.plugins.session_affinity import encode_token
from tests.support.pool import make_plugin, make_request, make_table


def asking(token: str) -> InferenceRequest:
    request = make_request()
    request.headers = Headers.of([("x-session-token", token)] if token else [])
    return request


def names(candidates: Candidates) -> list[str]:
    return [endpoint.spec.name for endpoint in candidates.endpoints]


def test_the_sessions_endpoint_is_left_alone():
    table = make_table(3)
    plugin = make_plugin(SessionAffinityFilter, table)
    assert names(plugin.filter(asking(encode_token("default/e1")), table.all())) == ["e1"]


@pytest.mark.parametrize("token", ["", "garbage", encode_token("default/gone")])
def test_without_a_present_endpoint_all_pass(token: str):
    table = make_table(2)
    candidates = table.all()
    assert make_plugin(SessionAffinityFilter, table).filter(asking(token), candidates) is candidates


def test_an_endpoint_that_another_filter_took_out_stays_out():
    table = make_table(3)
    narrowed = table.all().where(np.array([True, False, True]))
    plugin = make_plugin(SessionAffinityFilter, table)
    assert plugin.filter(asking(encode_token("default/e1")), narrowed) is narrowed
    assert names(plugin.filter(asking(encode_token("default/e2")), narrowed)) == ["e2"]
