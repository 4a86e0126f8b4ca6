"""context-length-aware: prompts go to the endpoints meant for their length."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.config.problems import ConfigErrors
from epp.graph import load_graph
from epp.interfaces.attributes import TOKENIZED_PROMPT, TokenizedPrompt
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.plugins.filters.context_length import ContextLengthAware
from tests.support.labelled import labelled_table, names
from tests.support.pool import make_plugin, make_request

LABEL = "llm-d.ai/context-length-range"
FILTERING = {"enableFiltering": True}


def pool(*ranges: str | None) -> EndpointTable:
    return labelled_table([{} if text is None else {LABEL: text} for text in ranges])


def prompt(tokens: int) -> InferenceRequest:
    request = make_request()
    request.put(TOKENIZED_PROMPT, TokenizedPrompt(b"", tokens))
    return request


def left(tokens: int, *ranges: str | None, parameters: dict[str, Any] = FILTERING) -> list[str]:
    table = pool(*ranges)
    return names(make_plugin(ContextLengthAware, table, parameters).filter(prompt(tokens), table.all()))


def scores(tokens: int, *ranges: str | None) -> list[float]:
    table = pool(*ranges)
    made: list[float] = make_plugin(ContextLengthAware, table).score(prompt(tokens), table.all()).tolist()
    return made


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (0, ["e0", "e3"]),
        (1000, ["e0", "e3"]),
        (1001, ["e1", "e3"]),
        (8000, ["e1", "e2", "e3"]),
        (9000, ["e3"]),
    ],
)
def test_the_filter_keeps_ranges_that_hold_the_prompt_and_endpoints_without_one(
    tokens: int, expected: list[str]
):
    assert left(tokens, "0-1000", "1001-8000", "8000-8000", None) == expected


def test_the_filter_is_off_by_default():
    assert left(5, "10-20", "bad", parameters={}) == ["e0", "e1"]


@pytest.mark.parametrize(
    "text", ["", "10", "10-", "-10", "20-10", "a-b", "1-2-3", " 1-2", "1-2\n", "0-" + "9" * 13]
)
def test_an_endpoint_whose_label_is_no_range_takes_nothing(text: str):
    assert left(5, text, "0-10") == ["e1"]
    assert scores(5, text) == [0.0]


def test_nobody_may_be_left():
    assert left(5, "10-20", "30-40") == []
    assert left(5) == []


def test_scores_in_range_reward_narrow_ranges_and_room_above():
    assert scores(0, "0-10000") == [0.3 + 0.7 * (0.7 / 2 + 0.3)]
    assert scores(5000, "0-10000", "0-20000") == pytest.approx(
        [0.3 + 0.7 * (0.7 / 2 + 0.3 * 0.5), 0.3 + 0.7 * (0.7 / 3 + 0.3 * 0.75)], abs=1e-12
    )
    assert scores(10_000, "0-10000") == pytest.approx([0.3 + 0.7 * 0.35], abs=1e-12)
    assert scores(700, "700-700") == [1.0]


def test_scores_out_of_range_fall_with_the_distance():
    assert scores(3000, "0-2000", "4000-5000", "0-1000", "2999-2999") == pytest.approx(
        [0.3 / 2, 0.3 / 2, 0.3 / 3, 0.3 / 1.001], abs=1e-12
    )


def test_an_endpoint_without_the_label_scores_one_half():
    assert scores(3000, None) == [0.5]
    assert scores(3000) == []


def test_a_prompt_of_unknown_length_narrows_nothing_and_prefers_nobody():
    table = pool("0-10", None, "bad")
    plugin = make_plugin(ContextLengthAware, table, FILTERING)
    assert plugin.filter(make_request(), table.all()) is table.all()
    assert plugin.score(make_request(), table.all()).tolist() == [0.5, 0.5, 0.5]


def test_a_batched_prompt_is_as_long_as_its_longest_part():
    table, request = pool("0-5", "6-10"), make_request()
    request.put(TOKENIZED_PROMPT, TokenizedPrompt(b"", 8, [bytes(4 * 5), bytes(4 * 3)]))
    plugin = make_plugin(ContextLengthAware, table, FILTERING)
    assert names(plugin.filter(request, table.all())) == ["e0"]
    request.put(TOKENIZED_PROMPT, TokenizedPrompt(b"", 0, []))
    assert names(plugin.filter(request, table.all())) == ["e0"]


def test_candidates_that_filters_left_are_scored_in_their_order():
    table = pool("0-10", None, "20-20")
    narrowed = table.all().where(np.array([False, True, True]))
    assert make_plugin(ContextLengthAware, table).score(prompt(20), narrowed).tolist() == [0.5, 1.0]


def test_the_label_may_be_another():
    table = labelled_table([{"window": "0-10"}, {"window": "11-20"}])
    plugin = make_plugin(ContextLengthAware, table, {"label": "window", "enableFiltering": True})
    assert names(plugin.filter(prompt(15), table.all())) == ["e1"]


tokens = st.integers(0, 10**12 - 1)


@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=6), tokens)
def test_scores_are_bounded_and_tell_in_range_from_out_of_range(ranges: list[tuple[int, int]], length: int):
    bounds = [(min(pair), max(pair)) for pair in ranges]
    for (least, most), score in zip(bounds, scores(length, *(f"{a}-{b}" for a, b in bounds)), strict=True):
        assert 0.3 <= score <= 1.0 if least <= length <= most else 0.0 < score < 0.3


def test_one_entry_in_a_profile_is_both_filter_and_scorer():
    graph = load_graph(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
        "plugins: [{type: context-length-aware, parameters: {enableFiltering: true}}]\n"
        "schedulingProfiles: [{name: default, plugins: [{pluginRef: context-length-aware, weight: 2}]}]",
        Handle(EndpointTable()),
    )
    profile, plugin = graph.profiles["default"], graph.instances["context-length-aware"]
    assert profile.filters == (("context-length-aware", plugin),)
    assert profile.scorers == (("context-length-aware", plugin, 2.0),)
    assert "token-producer" in graph.instances


def test_an_empty_label_key_is_refused():
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(ContextLengthAware, None, {"label": ""})
    assert [str(error) for error in caught.value.errors] == ["parameters.label: must not be empty"]
