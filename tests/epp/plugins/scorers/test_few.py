"""Scorers that also work on lists: whatever the pool looks like, both ways give the same scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.interfaces.attributes import PREFIX_MATCH, PrefixMatch
from epp.interfaces.endpoint import FEW, EndpointTable
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import FewScorer
from epp.plugins.pickers.max_score import MaxScorePicker
from epp.plugins.scorers.kv_cache_utilization import KvCacheUtilizationScorer
from epp.plugins.scorers.prefix_cache import PrefixCacheScorer
from epp.plugins.scorers.queue_depth import QueueDepthScorer
from epp.scheduling.profile import Profile
from tests.support.pool import make_plugin, make_request, make_table

SCORERS: list[tuple[Any, dict[str, Any]]] = [
    (QueueDepthScorer, {}),
    (QueueDepthScorer, {"minSpread": 0}),
    (KvCacheUtilizationScorer, {}),
    (PrefixCacheScorer, {}),
    (PrefixCacheScorer, {"matchLengthWeight": 0.5}),
]

ROWS = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.integers(0, 5),
        st.floats(-0.5, 1.5, width=32),
        st.booleans(),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=FEW,
)


def pool_of(rows: list[tuple[int, int, float, bool, int]]) -> tuple[EndpointTable, InferenceRequest]:
    """A table of these rows (waiting, unseen, usage, fresh, matched blocks), and a request of nine blocks."""
    table = make_table(len(rows))
    for endpoint, (waiting, unseen, usage, fresh, _) in zip(table.all().endpoints, rows, strict=True):
        slot = endpoint.slot
        table.waiting[slot], table.unseen[slot], table.kv_usage[slot] = waiting, unseen, usage
        if not fresh:
            table.distrust(slot)
    request = make_request()
    matched = np.array([row[4] for row in rows], dtype=float)
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), matched, 9, 64))
    return table, request


@given(ROWS, st.sampled_from(range(len(SCORERS))), st.booleans())
def test_lists_and_arrays_agree_to_the_bit(
    rows: list[tuple[int, int, float, bool, int]], number: int, narrowed: bool
) -> None:
    table, request = pool_of(rows)
    kind, parameters = SCORERS[number]
    scorer = make_plugin(kind, table, parameters)
    assert isinstance(scorer, FewScorer)
    candidates = table.all()
    if narrowed and len(rows) > 1:
        candidates = candidates.where(np.arange(len(rows)) > 0)
    expected = np.clip(scorer.score(request, candidates), 0.0, 1.0).tolist()
    assert scorer.score_few(request, candidates) == expected


@pytest.mark.parametrize("total", [0, None])
def test_without_a_match_the_prefix_is_worth_nothing(total: int | None) -> None:
    table, request = pool_of([(0, 0, 0.0, True, 3)] * 2)
    if total is None:
        request.attributes.clear()
    else:
        request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.zeros(2), total, 64))
    assert make_plugin(PrefixCacheScorer, table).score_few(request, table.all()) == [0.0, 0.0]


@given(ROWS)
def test_a_profile_comes_to_the_same_totals_either_way(rows: list[tuple[int, int, float, bool, int]]) -> None:
    table, request = pool_of(rows)
    scorers = [
        (kind.__name__, make_plugin(kind, table), weight)
        for kind, weight in (
            (QueueDepthScorer, 2.0),
            (KvCacheUtilizationScorer, 2.0),
            (PrefixCacheScorer, 3.0),
        )
    ]
    picker = make_plugin(MaxScorePicker, table)
    quick = Profile("p", [], scorers, picker)
    assert quick._few_steps
    plain = Profile("p", [], scorers, picker)
    plain._few_steps = []
    first, second = quick.run(request, table.all()), plain.run(request, table.all())
    assert first.totals.tolist() == second.totals.tolist()
    assert [list(trace.scores) for trace in first.scorers] == [list(trace.scores) for trace in second.scorers]
