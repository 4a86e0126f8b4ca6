"""prefix-based-pd-decider: enough of the prompt must be new to the endpoint."""

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from epp.interfaces.attributes import PREFIX_MATCH, TOKENIZED_PROMPT, PrefixMatch, TokenizedPrompt
from epp.plugins.deciders.prefix_based import PrefixBasedDecider
from tests.support.pool import add_endpoint, make_plugin, make_request, make_table


def wants(tokens: int, held_blocks: int | None, block_size: int = 16, **parameters: int) -> bool:
    """The answer for a prompt of which the second of two endpoints holds so many blocks; None = no match."""
    table = make_table(2)
    request = make_request()
    request.put(TOKENIZED_PROMPT, TokenizedPrompt(bytes(4 * tokens), tokens))
    if held_blocks is not None:
        matched = np.array([0.0, held_blocks])
        request.put(PREFIX_MATCH, PrefixMatch(table.all(), matched, -(-tokens // block_size), block_size))
    decider = make_plugin(PrefixBasedDecider, table, parameters)
    answer: bool = decider.wants_stage(request, table.get("default/e1"))
    return answer


@pytest.mark.parametrize(
    ("tokens", "held", "answer"),
    [(100, 0, True), (100, 1, True), (100, 2, True), (100, 3, False), (67, 0, True), (66, 0, False)],
)
def test_the_new_part_must_reach_the_threshold(tokens: int, held: int, answer: bool):
    assert wants(tokens, held, nonCachedTokens=67 if tokens < 100 else 68) is answer


def test_a_prompt_shorter_than_a_block_is_new_as_a_whole():
    assert wants(10, 0, nonCachedTokens=10) is True
    assert wants(10, 0, nonCachedTokens=11) is False
    assert wants(10, None, nonCachedTokens=10) is True


def test_a_partial_last_block_that_is_held_leaves_nothing_new():
    assert wants(10, 1, nonCachedTokens=1) is False


def test_short_prompts_are_left_alone():
    assert wants(99, 0, nonCachedTokens=10, promptTokens=100) is False
    assert wants(100, 0, nonCachedTokens=10, promptTokens=100) is True


def test_zero_means_never_and_is_warned_of():
    assert wants(1000, 0) is False
    assert make_plugin(PrefixBasedDecider).warnings == [
        "nonCachedTokens is 0, so no request is ever disaggregated"
    ]
    assert make_plugin(PrefixBasedDecider, None, {"nonCachedTokens": 1}).warnings == []


def test_an_endpoint_that_is_unknown_or_was_no_candidate_holds_nothing():
    table = make_table(1)
    request = make_request()
    request.put(TOKENIZED_PROMPT, TokenizedPrompt(bytes(400), 100))
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array([6.0]), 7, 16))
    decider = make_plugin(PrefixBasedDecider, table, {"nonCachedTokens": 50})
    assert decider.wants_stage(request, table.all().endpoint(0)) is False
    assert decider.wants_stage(request, None) is True
    assert decider.wants_stage(request, add_endpoint(table, "late")) is True


def test_a_request_without_prompt_is_never_disaggregated():
    decider = make_plugin(PrefixBasedDecider, None, {"nonCachedTokens": 1})
    assert decider.wants_stage(make_request(), None) is False


@pytest.mark.parametrize("name", ["nonCachedTokens", "promptTokens"])
def test_negative_numbers_are_refused(name: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(PrefixBasedDecider, None, {name: -1})
    assert caught.value.errors[0].path == f"parameters.{name}"
