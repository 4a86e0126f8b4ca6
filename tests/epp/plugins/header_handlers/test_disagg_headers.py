"""disagg-headers-handler and its older name: the sidecar's headers from the results of two profiles."""

import numpy as np

from dataplane.headers import ENCODERS, PREFILLER
from epp.interfaces.scheduling import ProfileResult, SchedulingResult
from epp.plugins.header_handlers.disagg_headers import DisaggHeadersHandler
from epp.plugins.header_handlers.prefill_header import PrefillHeaderHandler
from tests.support.pool import chosen, make_plugin, make_request, make_table


def told(result: SchedulingResult, **parameters: str) -> dict[str, str]:
    """Headers that both set for a decision."""
    by_both: list[dict[str, str]] = []
    for handler in (DisaggHeadersHandler, PrefillHeaderHandler):
        set_headers: dict[str, str] = {}
        make_plugin(handler, None, parameters).pre_request(make_request(), result, set_headers)
        by_both.append(set_headers)
    assert by_both[0] == by_both[1]
    return by_both[0]


def decision(**endpoints: tuple[int, ...]) -> SchedulingResult:
    """A decision for the first of three endpoints, with these results beside it."""
    candidates = make_table(3).all()
    result = chosen(candidates, 0)
    for profile, positions in endpoints.items():
        found = [candidates.endpoint(position) for position in positions]
        result.results[profile] = ProfileResult(profile, found, candidates, np.zeros(3), [], [])
    return result


def test_prefill_is_the_first_endpoint_and_encode_all_of_them():
    assert told(decision(prefill=(1, 2), encode=(2, 1))) == {
        PREFILLER: "10.0.0.2:8000",
        ENCODERS: "10.0.0.3:8000,10.0.0.2:8000",
    }


def test_a_profile_that_did_not_run_sets_nothing():
    assert told(decision()) == {}
    assert told(decision(encode=(1,))) == {ENCODERS: "10.0.0.2:8000"}


def test_profiles_may_have_other_names():
    result = decision(p=(1,), e=(2,))
    assert told(result, prefillProfile="p", encodeProfile="e") == {
        PREFILLER: "10.0.0.2:8000",
        ENCODERS: "10.0.0.3:8000",
    }


def test_the_deprecation_names_what_replaces_it():
    assert make_plugin(DisaggHeadersHandler).warnings == [
        "disagg-headers-handler is deprecated; disagg-profile-handler sets these headers itself, so remove it"
    ]
