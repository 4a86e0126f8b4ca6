"""lora-affinity-scorer: a loaded adapter, then room for one, then one that waits; as of the last scrape."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.endpoint import EndpointTable
from epp.plugins.scorers.lora_affinity import LoraAffinityScorer
from tests.support.pool import add_endpoint, make_plugin, make_request, make_table


def report(
    table: EndpointTable,
    position: int,
    running: str = "",
    waiting: str = "",
    most: int = 0,
    *,
    ends: bool = True,
) -> None:
    """One scrape of an endpoint finds these adapters, each a letter."""
    endpoint = table.all().endpoint(position)
    table.begin_scrape(endpoint.slot)
    endpoint.active_models = frozenset(running)
    endpoint.waiting_models = frozenset(waiting)
    endpoint.max_active_models = most
    if ends:
        table.end_scrape(endpoint.slot, 0.0)


def scores(scorer: LoraAffinityScorer, table: EndpointTable, adapter: str = "a") -> list[float]:
    return scorer.score(make_request(model=adapter), table.all()).tolist()


def test_running_beats_room_beats_waiting_beats_the_rest():
    table = make_table(5)
    report(table, 0, running="a", waiting="b", most=2)
    report(table, 1, running="b", most=2)
    report(table, 2, running="bc", waiting="a", most=2)
    report(table, 3, running="bc", most=2)
    report(table, 4, running="b", waiting="a", most=3)
    scorer = make_plugin(LoraAffinityScorer, table)
    assert scores(scorer, table) == [1.0, 0.8, 0.6, 0.0, 0.8]
    assert scores(scorer, table, "b") == [0.6, 1.0, 1.0, 1.0, 1.0]
    assert scores(scorer, table, "unknown") == [0.0, 0.8, 0.0, 0.0, 0.8]


def test_servers_that_report_no_adapters_score_zero():
    table = make_table(2)
    scorer = make_plugin(LoraAffinityScorer, table)
    assert scores(scorer, table) == [0.0, 0.0]
    assert scores(make_plugin(LoraAffinityScorer, make_table(0)), make_table(0)) == []


def test_the_target_model_counts_not_the_one_asked_for():
    table = make_table(1)
    report(table, 0, running="a", most=1)
    request = make_request(model="alias")
    request.target_model = "a"
    assert make_plugin(LoraAffinityScorer, table).score(request, table.all()).tolist() == [1.0]


def test_each_scrape_is_seen_by_the_next_decision():
    table = make_table(2)
    report(table, 0, running="a", most=1)
    scorer = make_plugin(LoraAffinityScorer, table)
    assert scores(scorer, table) == [1.0, 0.0]
    report(table, 0, running="b", most=1)
    report(table, 1, running="a", most=2)
    assert scores(scorer, table) == [0.0, 1.0]
    assert scores(scorer, table, "b") == [1.0, 0.8]


def test_a_scrape_without_a_queue_is_seen_at_the_next_one():
    table = make_table(1)
    scorer = make_plugin(LoraAffinityScorer, table)
    report(table, 0, running="a", most=1, ends=False)
    assert scores(scorer, table) == [1.0]


def test_candidates_that_filters_left_get_their_own_scores():
    table = make_table(3)
    report(table, 1, running="a", most=1)
    narrowed = table.all().where(np.array([False, True, True]))
    scorer = make_plugin(LoraAffinityScorer, table)
    assert scorer.score(make_request(model="a"), narrowed).tolist() == [1.0, 0.0]


def test_a_departed_endpoint_leaves_nothing_to_its_successor_and_the_table_may_grow():
    table = make_table(1)
    report(table, 0, running="a", most=1)
    scorer = make_plugin(LoraAffinityScorer, table)
    assert scores(scorer, table) == [1.0]
    table.remove("default/e0")
    for i in range(6):
        add_endpoint(table, f"n{i}")
    assert scores(scorer, table) == [0.0] * 6


ADAPTERS = st.sets(st.sampled_from("abc")).map("".join)
REPORTS = st.lists(st.tuples(st.integers(0, 2), ADAPTERS, ADAPTERS, st.integers(0, 4)), max_size=12)


@given(REPORTS)
def test_the_index_always_says_what_a_new_one_would(reports: list[tuple[int, str, str, int]]):
    table = make_table(3)
    kept = make_plugin(LoraAffinityScorer, table)
    for position, running, waiting, most in reports:
        report(table, position, running, waiting, most)
        new = make_plugin(LoraAffinityScorer, table)
        assert [scores(kept, table, a) for a in "abc"] == [scores(new, table, a) for a in "abc"]


def test_it_reads_what_the_engines_report():
    assert list(make_plugin(LoraAffinityScorer).consumes) == [ENGINE_METRICS]


def test_its_state_is_the_adapters_most_widespread_first():
    table = make_table(3)
    report(table, 0, running="a", waiting="b", most=2)
    report(table, 1, running="a", most=2)
    report(table, 2, waiting="a", most=2)
    shown = make_plugin(LoraAffinityScorer, table).dump_state()
    assert shown["adapters"] == [{"adapter": "a", "endpoints": 3}, {"adapter": "b", "endpoints": 1}]
    assert (shown["totalAdapters"], shown["leftOut"]) == (2, 0)
