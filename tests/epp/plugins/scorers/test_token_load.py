"""token-load-scorer: tokens in flight and those of this request, against an absolute threshold."""

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from epp.interfaces.attributes import (
    INFLIGHT_LOAD,
    PREFIX_MATCH,
    TOKENIZED_PROMPT,
    InflightLoad,
    PrefixMatch,
    TokenizedPrompt,
)
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.request import InferenceRequest
from epp.plugins.scorers.token_load import TokenLoadScorer
from tests.support.pool import make_plugin, make_request, make_table


def request_of(table: EndpointTable, in_flight: list[float], prompt: int = 0) -> InferenceRequest:
    """A request that finds these tokens in flight and brings so many of its own."""
    request = make_request()
    request.put(INFLIGHT_LOAD, InflightLoad(table.all(), np.zeros(len(table)), np.array(in_flight)))
    if prompt:
        request.put(TOKENIZED_PROMPT, TokenizedPrompt(b"\0\0\0\0" * prompt, prompt))
    return request


def scores(table: EndpointTable, request: InferenceRequest, threshold: int = 1000) -> list[float]:
    scorer = make_plugin(TokenLoadScorer, table, {"queueThresholdTokens": threshold})
    return scorer.score(request, table.all()).tolist()


def test_tokens_in_flight_lower_the_score_down_to_zero():
    table = make_table(4)
    assert scores(table, request_of(table, [0, 250, 1000, 5000])) == [1.0, 0.75, 0.0, 0.0]


def test_the_requests_own_tokens_count():
    table = make_table(2)
    assert scores(table, request_of(table, [0, 250], prompt=500)) == [0.5, 0.25]


def test_what_an_endpoint_holds_of_the_prompt_does_not_count():
    table = make_table(3)
    request = request_of(table, [0, 0, 250], prompt=500)
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array([0.0, 2.0, 9.0]), 9, 64))
    assert scores(table, request) == [0.5, 0.628, 0.75]


def test_the_default_threshold_is_four_mebitokens():
    table = make_table(1)
    scorer = make_plugin(TokenLoadScorer, table)
    assert scorer.score(request_of(table, [1_048_576]), table.all()).tolist() == [0.75]


def test_data_is_read_for_candidates_that_filters_left():
    table = make_table(3)
    request = request_of(table, [0, 250, 500], prompt=64)
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array([0.0, 1.0, 0.0]), 1, 64))
    narrowed = table.all().where(np.array([False, True, True]))
    scorer = make_plugin(TokenLoadScorer, table, {"queueThresholdTokens": 1000})
    assert scorer.score(request, narrowed).tolist() == pytest.approx([0.75, 0.436])


def test_without_a_ledger_or_endpoints_there_is_nothing_to_prefer():
    table = make_table(2)
    assert scores(table, make_request()) == [0.0, 0.0]
    assert scores(make_table(0), request_of(make_table(0), [])) == []


def test_it_consumes_a_ledger_and_the_prompts_tokens():
    assert list(make_plugin(TokenLoadScorer).consumes) == [INFLIGHT_LOAD, TOKENIZED_PROMPT]
    named = make_plugin(TokenLoadScorer, None, {"inFlightLoadProducerName": "mine"})
    assert list(named.consumes) == [INFLIGHT_LOAD.by("mine"), TOKENIZED_PROMPT]


def test_a_threshold_of_nothing_is_refused():
    with pytest.raises(ConfigErrors, match=r"parameters\.queueThresholdTokens: expected int >= 1"):
        make_plugin(TokenLoadScorer, None, {"queueThresholdTokens": 0})
