"""no-hit-lru-scorer: prompts nobody holds go round; prompts somebody holds are left to others."""

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.plugin.state import MAX_DUMPED
from epp.interfaces.attributes import PREFIX_MATCH, PrefixMatch
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ProfileResult, SchedulingResult
from epp.plugins.scorers.no_hit_lru import NoHitLruScorer
from tests.support.pool import add_endpoint, chosen, make_plugin, make_request, make_table


def request_with(table: EndpointTable, matched: list[float]) -> InferenceRequest:
    request = make_request()
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array(matched), 4, 64))
    return request


def scores(scorer: NoHitLruScorer, table: EndpointTable) -> list[float]:
    """Scores of a request nobody has a hit for."""
    return scorer.score(request_with(table, [0.0] * len(table)), table.all()).tolist()


def use(scorer: NoHitLruScorer, table: EndpointTable, *positions: int) -> None:
    """Requests without a hit go to these endpoints."""
    for position in positions:
        scorer.pre_request(request_with(table, [0.0] * len(table)), chosen(table.all(), position), {})


def test_never_used_endpoints_come_first_in_their_order():
    table = make_table(3)
    scorer = make_plugin(NoHitLruScorer, table)
    assert scores(scorer, table) == [1.0, 0.5, 0.0]
    use(scorer, table, 0)
    assert scores(scorer, table) == [0.0, 1.0, 0.5]


def test_then_the_one_used_longest_ago():
    table = make_table(3)
    scorer = make_plugin(NoHitLruScorer, table)
    use(scorer, table, 2, 0, 1)
    assert scores(scorer, table) == [0.5, 0.0, 1.0]
    use(scorer, table, 2)
    assert scores(scorer, table) == [1.0, 0.5, 0.0]


def test_a_hit_anywhere_makes_all_equal_and_is_not_remembered():
    table = make_table(3)
    scorer = make_plugin(NoHitLruScorer, table)
    warm = request_with(table, [0.0, 1.0, 0.0])
    assert scorer.score(warm, table.all()).tolist() == [0.5, 0.5, 0.5]
    scorer.pre_request(warm, chosen(table.all(), 0), {})
    assert scores(scorer, table) == [1.0, 0.5, 0.0]


def test_one_and_no_endpoints():
    table = make_table(1)
    scorer = make_plugin(NoHitLruScorer, table)
    use(scorer, table, 0)
    assert scores(scorer, table) == [1.0]
    assert scores(make_plugin(NoHitLruScorer, make_table(0)), make_table(0)) == []


def test_a_request_without_match_information_has_no_hit():
    table = make_table(2)
    scorer = make_plugin(NoHitLruScorer, table)
    scorer.pre_request(make_request(), chosen(table.all(), 0), {})
    assert scorer.score(make_request(), table.all()).tolist() == [0.0, 1.0]


def test_the_endpoint_of_the_prefill_profile_is_used_too():
    table = make_table(3)
    scorer = make_plugin(NoHitLruScorer, table)
    result = chosen(table.all(), 0)
    prefill = ProfileResult("prefill", [table.all().endpoint(1)], table.all(), np.zeros(3), [], [])
    both = SchedulingResult({**result.results, "prefill": prefill}, "default")
    scorer.pre_request(request_with(table, [0.0] * 3), both, {})
    assert scores(scorer, table) == [0.5, 0.0, 1.0]


def test_ranks_are_among_the_candidates_that_filters_left():
    table = make_table(4)
    scorer = make_plugin(NoHitLruScorer, table)
    use(scorer, table, 1, 3)
    narrowed = table.all().where(np.array([False, True, True, True]))
    request = request_with(table, [0.0] * 4)
    assert scorer.score(request, narrowed).tolist() == [0.5, 1.0, 0.0]


def test_only_so_many_uses_are_remembered():
    table = make_table(4)
    scorer = make_plugin(NoHitLruScorer, table, {"lruSize": 2})
    use(scorer, table, 0, 1, 2)
    assert scores(scorer, table) == pytest.approx([1.0, 1 / 3, 0.0, 2 / 3])


def test_a_successor_in_a_slot_is_new_and_the_table_may_grow():
    table = make_table(2)
    scorer = make_plugin(NoHitLruScorer, table)
    use(scorer, table, 0, 1)
    table.remove("default/e0")
    add_endpoint(table, "successor")
    assert scores(scorer, table) == [1.0, 0.0]
    for i in range(4):
        add_endpoint(table, f"n{i}")
    use(scorer, table, 5)
    assert scores(scorer, table) == pytest.approx([1.0, 0.2, 0.8, 0.6, 0.4, 0.0])


def test_deprecated_parameters_are_accepted_with_a_warning():
    scorer = make_plugin(
        NoHitLruScorer, None, {"prefixPluginType": "prefix-cache-scorer", "prefixPluginName": "p"}
    )
    assert scorer.warnings == [
        "prefixPluginType is deprecated and has no effect; use prefixMatchInfoProducerName",
        "prefixPluginName is deprecated and has no effect; use prefixMatchInfoProducerName",
    ]
    assert list(scorer.consumes) == [PREFIX_MATCH]
    named = make_plugin(NoHitLruScorer, None, {"prefixMatchInfoProducerName": "mine"})
    assert list(named.consumes) == [PREFIX_MATCH.by("mine")]
    assert named.warnings == []


def test_a_memory_of_nothing_is_refused():
    with pytest.raises(ConfigErrors, match=r"parameters\.lruSize: expected int >= 1"):
        make_plugin(NoHitLruScorer, None, {"lruSize": 0})


def test_its_state_is_the_order_of_use_without_those_who_left():
    table = make_table(4)
    scorer = make_plugin(NoHitLruScorer, table, {"lruSize": 3})
    use(scorer, table, 2, 0, 1)
    table.remove("default/e0")
    assert scorer.dump_state() == {
        "lruSize": 3,
        "uses": 3,
        "totalEndpoints": 2,
        "maxEndpoints": MAX_DUMPED,
        "truncated": False,
        "leftOut": 0,
        "endpoints": ["default/e1", "default/e2"],
    }
