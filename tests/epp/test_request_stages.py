"""From request headers to response headers: the order of the stages, and what failures in them cost."""

import logging

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import BadRequestError, ResourceExhaustedError, ServiceUnavailableError
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Ending
from dataplane.headers import DESTINATION_ENDPOINT
from epp.plugin_failures import LOG_INTERVAL_S
from tests.support.pool import make_table
from tests.support.request_path import Rig, destination, graph_of, request_of, response
from tests.support.request_plugins import CALLS


def test_the_stages_run_in_their_order_and_within_one_in_configured_order():
    rig = Rig("- {type: tell-tale, name: b}\n- {type: tell-tale, name: a}\n")
    exchange, _ = rig.ask()
    exchange.on_response_headers(response(served="10.0.0.2:8000"))
    assert request_of(exchange).get(CALLS) == [
        "b: request headers",
        "a: request headers",
        "b: produce",
        "a: produce",
        "b: admit among 2",
        "a: admit among 2",
        "b: pre-request",
        "a: pre-request",
        "b: response headers 200 of 10.0.0.2:8000",
        "a: response headers 200 of 10.0.0.2:8000",
    ]


def test_a_plugin_may_set_the_fairness_id_and_the_caller_has_precedence():
    rig = Rig("- {type: tell-tale, parameters: {fairnessId: agent}}\n")
    assert request_of(rig.ask()[0]).fairness_id == "agent"
    assert request_of(rig.ask(("x-llm-d-inference-fairness-id", "tenant"))[0]).fairness_id == "tenant"
    assert request_of(Rig("- type: tell-tale\n").ask()[0]).fairness_id == "default-flow"
    assert [d["fairnessId"] for d in rig.decisions.recent()] == ["tenant", "agent"]


def test_an_error_of_a_request_header_plugin_is_the_requests():
    rig = Rig("- {type: tell-tale, parameters: {headerError: true}}\n")
    with pytest.raises(BadRequestError, match="that header makes no sense"):
        rig.ask()


@pytest.mark.parametrize(
    ("parameters", "message", "retry_after"),
    [
        ("{denial: not today}", "request cannot be admitted: not today", 1),
        ("{denialError: come back}", "come back", 7),
    ],
)
def test_a_denial_is_429_and_books_nothing(parameters: str, message: str, retry_after: int):
    rig = Rig(f"- {{type: tell-tale, parameters: {parameters}}}\n- {{type: tell-tale, name: later}}\n")
    with pytest.raises(ResourceExhaustedError) as caught:
        rig.ask()
    error = caught.value
    assert (error.status, error.code, error.dropped_reason) == (
        429,
        "ResourceExhausted",
        "rejected-saturated",
    )
    assert (error.message, error.retry_after_s) == (message, retry_after)
    assert rig.table.inflight.sum() == 0
    assert next(iter(rig.decisions.recent()))["error"] == f"ResourceExhausted: {message}"


def test_response_headers_are_set_for_the_client_and_stale_ones_removed():
    rig = Rig("- {type: tell-tale, parameters: {responseHeaders: {x-session-token: abc}}}\n")
    exchange, _ = rig.ask()
    decision = exchange.on_response_headers(response((DESTINATION_ENDPOINT, "1.2.3.4:5")))
    assert isinstance(decision, Proceed)
    assert list(decision.set_headers) == [
        ("x-went-into-resp-headers", b"true"),
        ("x-session-token", b"abc"),
    ]
    assert list(decision.remove_headers) == [DESTINATION_ENDPOINT]


def test_a_response_header_of_the_picker_itself_cannot_be_set():
    rig = Rig(f"- {{type: tell-tale, parameters: {{responseHeaders: {{{DESTINATION_ENDPOINT}: here}}}}}}\n")
    exchange, _ = rig.ask()
    decision = exchange.on_response_headers(response())
    assert isinstance(decision, Proceed)
    assert list(decision.set_headers) == [("x-went-into-resp-headers", b"true")]


def test_a_failing_response_header_plugin_costs_only_its_own_headers(caplog: pytest.LogCaptureFixture):
    rig = Rig(
        "- {type: tell-tale, name: broken, parameters: {responseHeaders: {x-a: lost}, responseError: true}}\n"
        '- {type: tell-tale, name: split, parameters: {responseHeaders: {x-b: "1\\r\\nx-c: 2"}}}\n'
        "- {type: tell-tale, name: sound, parameters: {responseHeaders: {x-d: kept}}}\n"
    )
    for _ in range(3):
        exchange, _ = rig.ask()
        decision = exchange.on_response_headers(response())
        assert isinstance(decision, Proceed)
        assert list(decision.set_headers) == [("x-went-into-resp-headers", b"true"), ("x-d", b"kept")]
        exchange.on_response_chunk(b"{}", True)
        exchange.on_end(Ending.NATURAL)
    assert rig.table.inflight.sum() == 0
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [text.partition(" failed")[0] for text in logged] == ["plugin 'broken'", "plugin 'split'"]
    rig.clock.advance(LOG_INTERVAL_S)
    rig.ask()[0].on_response_headers(response())
    assert (
        "plugin 'broken' failed as ResponseHeaderProcessor, so the response passes"
        in caplog.records[-2].getMessage()
    )
    assert caplog.records[-2].getMessage().endswith("2 failures not logged")


def test_a_failing_producer_costs_its_own_data_only(caplog: pytest.LogCaptureFixture):
    rig = Rig(
        "- {type: tell-tale, name: broken, parameters: {produceError: LookupError}}\n"
        "- {type: tell-tale, name: sound}\n"
    )
    exchange, decision = rig.ask()
    assert destination(decision)
    assert "sound: produce" in (request_of(exchange).get(CALLS) or [])
    (logged,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert logged == (
        "plugin 'broken' failed as DataProducer, so its data is missing and the request goes on without; "
        "0 failures not logged"
    )
    labels = 'extension_point="DataProducer",plugin_type="tell-tale",plugin_name="broken"'
    assert f"pointsman_epp_plugin_failures_total{{{labels}}} 1" in "".join(rig.metrics.numbers.expose())


def test_a_producer_may_refuse_the_request():
    rig = Rig("- {type: tell-tale, parameters: {produceError: BadRequestError}}\n")
    with pytest.raises(BadRequestError, match="that data makes no sense"):
        rig.ask()
    assert rig.table.inflight.sum() == 0


def test_nothing_is_asked_when_there_is_nobody_to_ask():
    rig = Rig("- type: queue-scorer\n")
    graph = rig.graph
    assert (graph.request_header_processors, graph.admitters, graph.response_header_processors) == (
        (),
        (),
        (),
    )
    assert not rig.director.sets_response_headers
    first, second = (rig.ask()[0].on_response_headers(response()) for _ in range(2))
    assert first is second


def test_a_response_without_a_decision_asks_nobody():
    rig = Rig("- {type: tell-tale, parameters: {responseHeaders: {x-a: b}}}\n")
    decision = rig.handler.open().on_response_headers(response())
    assert isinstance(decision, Proceed)
    assert list(decision.set_headers) == [("x-went-into-resp-headers", b"true")]


def test_what_a_header_plugin_leaves_needs_no_data_producer():
    graph = graph_of("- type: header-provider\n- type: right-reader\n", make_table(1))
    assert (len(graph.request_header_processors), graph.producers) == (1, ())
    with pytest.raises(ConfigErrors, match="no default producer found for missing data key Right"):
        graph_of("- type: right-reader\n", make_table(1))


def picky(name: str, *keep: str) -> str:
    return f"- {{type: picky-screener, name: {name}, parameters: {{keep: [{', '.join(keep)}]}}}}\n"


def test_every_screener_sees_all_candidates_and_what_all_keep_goes_on():
    rig = Rig(picky("a", "e0", "e1") + picky("b", "e2", "e1") + "- type: tell-tale\n", make_table(3))
    exchange, decision = rig.ask()
    assert destination(decision) == "10.0.0.2:8000"
    assert request_of(exchange).get(CALLS) == [
        "tell-tale: request headers",
        "a: screen 3",
        "b: screen 3",
        "tell-tale: produce",
        "tell-tale: admit among 1",
        "tell-tale: pre-request",
    ]


@pytest.mark.parametrize("plugins", [picky("a"), picky("a", "e0") + picky("b", "e1")])
def test_screeners_that_leave_nobody_are_503_and_nothing_else_is_asked(plugins: str):
    rig = Rig(plugins + "- type: tell-tale\n")
    with pytest.raises(ServiceUnavailableError) as caught:
        rig.ask()
    error = caught.value
    assert (error.status, error.message, error.dropped_reason) == (
        503,
        "screeners eliminated all endpoint candidates",
        "rejected-no-endpoints",
    )
    assert rig.table.inflight.sum() == 0
    assert next(iter(rig.decisions.recent()))["error"] == f"ServiceUnavailable: {error.message}"
