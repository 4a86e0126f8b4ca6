"""inflight-load-producer: tokens in flight are booked once and released once, whatever happens."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from dataplane.plugin.state import MAX_DUMPED
from epp.interfaces.attributes import (
    INFLIGHT_LOAD,
    PREFIX_MATCH,
    TOKENIZED_PROMPT,
    PrefixMatch,
    TokenizedPrompt,
)
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.request import InferenceRequest, ResponseSummary
from epp.plugins.producers.inflight_load import MAX_EXPECTED_TOKENS, InflightLoadProducer
from tests.support.pool import add_endpoint, chosen, make_plugin, make_request, make_table, prefilled

DONE = ResponseSummary(status=200)


def request_of(tokens: int, **fields: Any) -> InferenceRequest:
    """A request whose prompt has so many tokens."""
    request = make_request(**fields)
    request.put(TOKENIZED_PROMPT, TokenizedPrompt(b"\0\0\0\0" * tokens, tokens))
    return request


def send(
    producer: InflightLoadProducer, table: EndpointTable, request: InferenceRequest, to: int = 0
) -> None:
    """The request is decided for one endpoint."""
    producer.pre_request(request, chosen(table.all(), to), {})


def tokens(table: EndpointTable) -> list[float]:
    """Tokens in flight per slot that was ever used."""
    return table.inflight_tokens[: max(2, len(table))].tolist()


def test_publishes_the_load_before_this_request():
    table = make_table(3, inflight=[1, 2, 3], inflight_tokens=[10, 20, 30])
    request = make_request()
    candidates = table.all().where(np.array([True, False, True]))
    make_plugin(InflightLoadProducer, table).produce(request, candidates)
    load = request.get(INFLIGHT_LOAD)
    assert load is not None
    assert load.candidates is candidates
    assert (load.requests.tolist(), load.tokens.tolist()) == ([1.0, 3.0], [10.0, 30.0])


def test_the_prompt_is_released_at_the_first_byte():
    table = make_table(2)
    producer = make_plugin(InflightLoadProducer, table)
    request = request_of(100)
    send(producer, table, request, to=1)
    assert tokens(table) == [0.0, 100.0]
    producer.on_first_byte(request)
    assert tokens(table) == [0.0, 0.0]
    producer.on_response_end(request, DONE)
    assert tokens(table) == [0.0, 0.0]


def test_expected_output_is_released_at_the_end():
    table = make_table(2)
    producer = make_plugin(InflightLoadProducer, table, {"addEstimatedOutputTokens": True})
    request = request_of(100)
    send(producer, table, request)
    assert tokens(table) == [250.0, 0.0]
    producer.on_first_byte(request)
    assert tokens(table) == [150.0, 0.0]
    producer.on_response_end(request, DONE)
    assert tokens(table) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("parameters", "limit", "expected"),
    [
        ({"outputRatio": 0.333}, None, 33),
        ({"maxEstimatedOutputTokens": 40}, None, 40),
        ({"maxEstimatedOutputTokens": 40}, 20, 20),
        ({}, 20, 20),
        ({}, 0, 0),
        ({"outputRatio": 0}, None, 0),
        ({"outputRatio": 1e308}, None, MAX_EXPECTED_TOKENS),
        ({"outputRatio": 1e308}, 10**30, MAX_EXPECTED_TOKENS),
        ({}, -5, 0),
    ],
)
def test_expected_output_has_limits(parameters: dict[str, float], limit: int | None, expected: int):
    table = make_table(1)
    producer = make_plugin(InflightLoadProducer, table, {"addEstimatedOutputTokens": True, **parameters})
    request = request_of(100, max_output_tokens=limit)
    send(producer, table, request)
    producer.on_first_byte(request)
    assert tokens(table)[0] == expected
    other = request_of(1, max_output_tokens=0)
    send(producer, table, other)
    producer.on_response_end(request, ResponseSummary())
    assert tokens(table)[0] == 1
    producer.on_response_end(other, ResponseSummary())
    assert tokens(table)[0] == 0


def test_blocks_the_endpoint_holds_are_no_load():
    table = make_table(2)
    producer = make_plugin(InflightLoadProducer, table)
    for to, expected in ((0, 100.0), (1, 36.0)):
        request = request_of(100)
        request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array([0.0, 4.0]), 7, 16))
        send(producer, table, request, to)
        assert tokens(table)[to] == expected


def test_a_prompt_of_unknown_size_is_no_load():
    table = make_table(1)
    producer = make_plugin(InflightLoadProducer, table)
    request = make_request()
    send(producer, table, request)
    producer.on_response_end(request, DONE)
    assert tokens(table)[0] == 0.0


def test_events_of_a_request_that_was_never_sent_do_nothing():
    table = make_table(1)
    producer = make_plugin(InflightLoadProducer, table)
    request = request_of(100)
    producer.on_first_byte(request)
    producer.on_response_end(request, ResponseSummary(cause="client-disconnect"))
    assert tokens(table)[0] == 0.0


def test_a_late_release_never_touches_the_next_tenant_of_the_slot():
    table = make_table(1)
    producer = make_plugin(InflightLoadProducer, table)
    old, new = request_of(100), request_of(7)
    send(producer, table, old)
    table.remove("default/e0")
    add_endpoint(table, "successor")
    send(producer, table, new)
    producer.on_response_end(old, DONE)
    assert tokens(table)[0] == 7.0
    producer.on_response_end(new, DONE)
    assert tokens(table)[0] == 0.0


EVENTS = st.lists(st.sampled_from(["send", "first byte", "end"]), max_size=8)


@given(EVENTS, EVENTS, st.booleans())
def test_any_order_of_events_ends_at_zero(first: list[str], second: list[str], estimate: bool):
    table = make_table(2)
    producer = make_plugin(InflightLoadProducer, table, {"addEstimatedOutputTokens": estimate})
    requests = [request_of(101, max_output_tokens=50), request_of(33)]
    for events, request in zip((first, second), requests, strict=True):
        for event in events:
            if event == "send":
                send(producer, table, request, to=len(events) % 2)
            elif event == "first byte":
                producer.on_first_byte(request)
            else:
                producer.on_response_end(request, DONE)
            assert table.inflight_tokens.min() >= 0.0
    for request in requests:
        producer.on_response_end(request, DONE)
    assert table.inflight_tokens.tolist() == [0.0] * table.capacity


def test_there_is_one_ledger_per_pool():
    first = make_plugin(InflightLoadProducer)
    with pytest.raises(ConfigError) as caught:
        make_plugin(InflightLoadProducer, name="second", plugins={"inflight-load-producer": first})
    assert str(caught.value) == (
        "the pool has one token ledger, and 'inflight-load-producer' keeps it; remove one"
    )


def test_it_consumes_tokens_and_a_named_producers_matches():
    assert list(make_plugin(InflightLoadProducer).consumes) == [TOKENIZED_PROMPT]
    named = make_plugin(InflightLoadProducer, None, {"prefixMatchInfoProducerName": "mine"})
    assert list(named.consumes) == [TOKENIZED_PROMPT, PREFIX_MATCH.by("mine")]
    assert list(make_plugin(InflightLoadProducer, name="other").produces) == [INFLIGHT_LOAD.by("other")]


@pytest.mark.parametrize("parameters", [{"outputRatio": -1}, {"maxEstimatedOutputTokens": -1}])
def test_negative_parameters_are_refused(parameters: dict[str, float]):
    with pytest.raises(ConfigErrors):
        make_plugin(InflightLoadProducer, None, parameters)


def test_a_prefill_endpoint_carries_the_prompt_until_the_first_byte():
    table = make_table(2)
    producer = make_plugin(InflightLoadProducer, table, {"addEstimatedOutputTokens": True})
    request = request_of(100)
    producer.pre_request(request, prefilled(table.all(), 0, 1), {})
    assert tokens(table) == [250.0, 100.0]
    producer.on_first_byte(request)
    assert tokens(table) == [150.0, 0.0]
    producer.on_response_end(request, DONE)
    assert tokens(table) == [0.0, 0.0]


def test_a_prefill_endpoint_carries_only_what_it_does_not_hold():
    table = make_table(2)
    request = request_of(100)
    request.put(PREFIX_MATCH, PrefixMatch(table.all(), np.array([0.0, 2.0]), 7, 16))
    make_plugin(InflightLoadProducer, table).pre_request(request, prefilled(table.all(), 0, 1), {})
    assert tokens(table) == [100.0, 68.0]


def test_an_endpoint_that_prefills_for_itself_is_booked_once():
    table = make_table(2)
    producer = make_plugin(InflightLoadProducer, table)
    producer.pre_request(request_of(100), prefilled(table.all(), 1, 1), {})
    assert tokens(table) == [0.0, 100.0]


def test_its_state_is_the_load_busiest_endpoints_first():
    table = make_table(4, inflight=[1, 0, 3, 2], inflight_tokens=[10, 0, 30, 20])
    shown = make_plugin(InflightLoadProducer, table).dump_state()
    assert (shown["requests"], shown["tokens"], shown["totalEndpoints"], shown["leftOut"]) == (6, 60, 3, 0)
    assert shown["endpoints"] == [
        {"endpoint": "default/e2", "address": "10.0.0.3:8000", "requests": 3, "tokens": 30},
        {"endpoint": "default/e3", "address": "10.0.0.4:8000", "requests": 2, "tokens": 20},
        {"endpoint": "default/e0", "address": "10.0.0.1:8000", "requests": 1, "tokens": 10},
    ]


def test_its_state_is_bounded_in_a_large_pool():
    count = MAX_DUMPED + 50
    table = make_table(count, inflight=list(range(1, count + 1)))
    shown = make_plugin(InflightLoadProducer, table).dump_state()
    assert [row["requests"] for row in shown["endpoints"]] == list(range(count, 50, -1))
    assert (shown["totalEndpoints"], shown["truncated"], shown["leftOut"]) == (count, True, 50)


def test_state_shared_between_replicas_is_not_there_and_that_is_said():
    said = {
        value: make_plugin(InflightLoadProducer, None, {"syncCrossReplicaState": value}).warnings
        for value in (True, False)
    }
    assert said == {
        True: ["syncCrossReplicaState has no effect: no state is shared between replicas"],
        False: [],
    }
    assert make_plugin(InflightLoadProducer).warnings == []
