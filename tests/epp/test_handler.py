"""One request's life in the picker, without a transport: what is answered, booked, counted and released."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dataplane.errors import BadRequestError, ServiceUnavailableError
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Ending, HttpRequest, HttpResponse
from dataplane.headers import DESTINATION_ENDPOINT, LB_NAMESPACE, STRIPPED_UPSTREAM, Headers
from epp.handler import PickerExchange, PickerHandler
from epp.interfaces.endpoint import EndpointTable
from tests.support.pool import make_table
from tests.support.request_path import Rig, Served, destination, response, set_headers

PLUGINS = """
- type: queue-scorer
- type: prefix-cache-scorer
- type: inflight-load-producer
"""
ID = ("x-request-id", "r1")


def ask(
    rig: Rig, body: bytes | dict[str, Any] | None, *headers: tuple[str, str]
) -> tuple[PickerExchange, Any]:
    """A new exchange and its answer to a POST with this body."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    fields = Headers.of([(":path", "/v1/chat/completions"), (":method", "POST"), *headers])
    exchange = rig.handler.open()
    return exchange, exchange.on_request(HttpRequest(fields, data, None), lambda decision: None)


def chat(content: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], **fields}


def inflight(rig: Rig) -> list[float]:
    return [rig.table.inflight.sum(), rig.table.unseen.sum(), rig.table.inflight_tokens.sum()]


def metric(rig: Rig, name: str) -> float:
    """Sum of a metric over its series."""
    lines = "".join(rig.metrics.numbers.expose()).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"llm_d_epp_{name}{{"))


def test_header_and_metadata_name_the_same_endpoint_and_routes_are_matched_again() -> None:
    rig = Rig(PLUGINS)
    _, answer = ask(rig, chat(), ID)
    assert isinstance(answer, Proceed)
    assert answer.metadata == {LB_NAMESPACE: {DESTINATION_ENDPOINT: destination(answer)}}
    assert list(answer.set_headers) == [(DESTINATION_ENDPOINT, destination(answer).encode())]
    assert answer.clear_route_cache
    assert list(answer.remove_headers) == []


def test_control_and_sidecar_headers_of_the_client_are_removed_and_the_destination_replaced() -> None:
    rig = Rig(PLUGINS)
    _, answer = ask(rig, chat(), ID, *((name, "1.1.1.1:666") for name in sorted(STRIPPED_UPSTREAM)))
    assert set(answer.remove_headers) == STRIPPED_UPSTREAM - {DESTINATION_ENDPOINT}
    assert destination(answer) in {e.key for e in rig.table.all().endpoints}


@pytest.mark.parametrize("given", [(), (("x-request-id", ""),)], ids=["absent", "empty"])
def test_a_missing_request_id_is_made_up_and_sent_upstream(given: tuple[tuple[str, str], ...]) -> None:
    rig = Rig(PLUGINS)
    _, answer = ask(rig, chat(), *given)
    made = set_headers(answer)["x-request-id"].decode()
    assert len(made) == 36
    assert [d["requestId"] for d in rig.decisions.recent()] == [made]


def test_a_decision_books_its_endpoint_before_the_next_one_is_made() -> None:
    rig = Rig(PLUGINS, make_table(4))
    exchanges = [ask(rig, chat(f"{i} distinct prompt"), ID)[0] for i in range(40)]
    assert rig.table.inflight[:4].tolist() == [10.0] * 4
    for exchange in exchanges:
        exchange.on_end(Ending.DISCONNECT)
    assert inflight(rig) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("ending", list(Ending))
def test_whatever_the_ending_everything_booked_is_released_once(ending: Ending) -> None:
    rig = Rig(PLUGINS)
    exchange, _ = ask(rig, chat(), ID)
    assert inflight(rig)[:2] == [1.0, 1.0]
    exchange.on_end(ending)
    exchange.on_end(ending)
    assert inflight(rig) == [0.0, 0.0, 0.0]
    assert metric(rig, "request_running") == 0
    assert metric(rig, "request_total") == 1


def test_when_another_endpoint_served_the_booking_follows() -> None:
    rig = Rig(PLUGINS)
    exchange, answer = ask(rig, chat(), ID)
    first = rig.table.at(destination(answer))
    other = next(e for e in rig.table.all().endpoints if e is not first)
    exchange.on_response_headers(response(served=other.key))
    assert rig.table.inflight[other.slot] == 1
    assert rig.table.inflight.sum() == 1
    exchange.on_end(Ending.NATURAL)
    assert inflight(rig) == [0.0, 0.0, 0.0]
    assert next(rig.decisions.recent())["response"]["served"] == other.key


def test_metadata_that_is_no_address_is_ignored() -> None:
    rig = Rig(PLUGINS)
    exchange, _ = ask(rig, chat(), ID)
    odd = response()
    odd.metadata = Served({"not": "text"})  # type: ignore[arg-type]
    exchange.on_response_headers(odd)
    assert next(rig.decisions.recent())["response"]["served"] == ""


def test_usage_ttft_and_ending_of_a_response_are_recorded() -> None:
    rig = Rig(PLUGINS)
    exchange, _ = ask(rig, chat(), ID)
    rig.clock.advance(0.5)
    exchange.on_response_headers(response(("content-type", "application/json")))
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    exchange.on_response_chunk(json.dumps({"usage": usage}).encode(), True)
    exchange.on_end(Ending.NATURAL)
    shown = next(rig.decisions.recent())["response"]
    assert (shown["status"], shown["ending"], shown["ttftMs"], shown["cachedTokens"]) == (
        200,
        "natural",
        500.0,
        3,
    )
    assert metric(rig, "request_input_tokens_sum") == 9
    assert metric(rig, "request_cached_tokens_sum") == 3
    assert metric(rig, "request_output_tokens_sum") == 4
    assert metric(rig, "request_ttft_seconds_sum") == 0.5


def test_gaps_between_the_chunks_of_a_stream_are_counted() -> None:
    rig = Rig(PLUGINS)
    exchange, _ = ask(rig, chat(stream=True), ID)
    exchange.on_response_headers(response(("content-type", "text/event-stream; charset=utf-8")))
    for chunk in (b"data: {}\n\n", b"data: {}\n\n", b"", b"data: [DONE]\n\n"):
        rig.clock.advance(0.25)
        exchange.on_response_chunk(chunk, False)
    exchange.on_end(Ending.NATURAL)
    assert metric(rig, "request_streaming_itl_seconds_count") == 2
    assert metric(rig, "request_streaming_itl_seconds_sum") == 0.75


@pytest.mark.parametrize(
    "head",
    [response(status=503), response(("grpc-status", "14"))],
    ids=["HTTP", "gRPC"],
)
def test_an_error_of_the_model_server_is_counted_and_not_read(head: HttpResponse) -> None:
    rig = Rig(PLUGINS)
    exchange, _ = ask(rig, chat(), ID)
    exchange.on_response_headers(head)
    exchange.on_response_chunk(b'{"usage": {"prompt_tokens": 1}}', True)
    exchange.on_end(Ending.NATURAL)
    assert metric(rig, "request_error_total") == 1
    assert metric(rig, "request_input_tokens_count") == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"no healthy upstream", "not valid JSON", id="text"),
        pytest.param(b"", "not valid JSON", id="empty"),
        pytest.param(b'{"prompt": "x"}', "messages must be a list", id="no-messages"),
    ],
)
def test_a_body_nobody_understands_is_refused_and_leaves_nothing_behind(body: bytes, message: str) -> None:
    rig = Rig(PLUGINS)
    with pytest.raises(BadRequestError, match=message):
        ask(rig, body, ID)
    assert inflight(rig) == [0.0, 0.0, 0.0]
    assert metric(rig, "request_total") == 0
    assert metric(rig, "request_error_total") == 1


def test_a_request_without_a_body_is_scheduled_like_any_other() -> None:
    rig = Rig(PLUGINS)
    exchange = rig.handler.open()
    fields = Headers.of([(":path", "/v1/models"), (":method", "GET"), ID])
    answer = exchange.on_request(HttpRequest(fields, b"", None), lambda decision: None)
    assert destination(answer) in {e.key for e in rig.table.all().endpoints}
    assert rig.table.inflight.sum() == 1


def test_an_empty_pool_is_503_with_a_reason() -> None:
    rig = Rig(PLUGINS, EndpointTable())
    with pytest.raises(ServiceUnavailableError) as caught:
        ask(rig, chat(), ID)
    assert (caught.value.status, caught.value.dropped_reason) == (503, "rejected-no-endpoints")
    record = next(rig.decisions.recent())
    assert record["error"].startswith("ServiceUnavailable: failed to find endpoint candidates")


def test_all_scores_are_emitted_when_asked_for() -> None:
    rig = Rig(PLUGINS)
    handler = PickerHandler(rig.director, rig.metrics, rig.decisions, rig.clock, emit_scores=True)
    fields = Headers.of([(":path", "/v1/chat/completions"), (":method", "POST"), ID])
    answer = handler.open().on_request(
        HttpRequest(fields, json.dumps(chat()).encode(), None), lambda decision: None
    )
    assert isinstance(answer, Proceed)
    assert answer.metadata is not None
    scores = answer.metadata[LB_NAMESPACE]["x-gateway-destination-endpoint-scores"]
    assert set(scores) == {e.key for e in rig.table.all().endpoints}
    assert all(isinstance(value, float) for value in scores.values())


def test_several_destinations_are_listed_best_first() -> None:
    rig = Rig(PLUGINS + "- {type: max-score-picker, parameters: {maxNumOfEndpoints: 2}}\n")
    _, answer = ask(rig, chat(), ID)
    first, second = destination(answer).split(",")
    assert {first, second} == {e.key for e in rig.table.all().endpoints}
    primary = rig.table.at(first)
    assert primary is not None
    assert rig.table.inflight[primary.slot] == 1


def test_a_stream_that_begins_with_a_response_is_passed_through() -> None:
    rig = Rig(PLUGINS)
    exchange = rig.handler.open()
    answer = exchange.on_response_headers(response())
    assert set_headers(answer) == {"x-went-into-resp-headers": b"true"}
    exchange.on_response_chunk(b"x", True)
    exchange.on_end(Ending.NATURAL)
    assert inflight(rig) == [0.0, 0.0, 0.0]
    assert list(rig.decisions.recent()) == []


def test_a_repeated_prompt_goes_where_it_was_and_the_record_says_how_much_matched() -> None:
    rig = Rig(PLUGINS, make_table(4))
    body = chat("word " * 400)
    first = destination(ask(rig, body, ID)[1])
    again = [destination(ask(rig, body, ID)[1]) for _ in range(3)]
    assert again == [first] * 3
    prefix = next(rig.decisions.recent())["prefix"]
    assert prefix["blockSizeTokens"] == 64
    assert 0 < prefix["matchedBlocks"] < prefix["totalBlocks"]


@pytest.mark.parametrize("coding", ["gzip", "\udcff"])
def test_a_compressed_body_is_refused_as_such(coding: str) -> None:
    rig = Rig(PLUGINS)
    with pytest.raises(BadRequestError) as caught:
        ask(rig, b"\x1f\x8b\x08\x00", ID, ("content-encoding", coding))
    assert caught.value.message == f"the request body is compressed ({coding!r}); send it as it is"
    assert json.loads(caught.value.body())["error"]["type"] == "invalid_request_error"
    with pytest.raises(BadRequestError, match="not valid JSON"):
        ask(rig, b"{", ID, ("content-encoding", "identity"))
