"""From request headers to response headers: the order of the stages, and what failures in them cost."""

import logging
from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import BadRequestError, ResourceExhaustedError
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Decision, Ending, HttpRequest, HttpResponse
from dataplane.headers import DESTINATION_ENDPOINT, DESTINATION_ENDPOINT_SERVED, LB_NAMESPACE, Headers
from epp.decisions import DecisionLog
from epp.director import FAILURE_LOG_INTERVAL_S, Admitted, Director
from epp.graph import PluginGraph, load_graph
from epp.handler import PickerExchange, PickerHandler
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.metrics import EppMetrics
from tests.support.clock import ManualClock
from tests.support.pool import make_table
from tests.support.request_plugins import CALLS, REQUEST_REGISTRY

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"
BODY = b'{"model": "m", "prompt": "hello"}'


class Rig:
    """A picker's request path over two endpoints, with these plugins."""

    def __init__(self, plugins: str, table: EndpointTable | None = None) -> None:
        self.table = table or make_table(2)
        self.clock = ManualClock()
        self.graph = graph_of(plugins, self.table)
        self.metrics = EppMetrics(self.table, "pool")
        self.director = Director(self.table, self.graph, self.metrics, self.clock)
        self.decisions = DecisionLog(10)
        self.handler = PickerHandler(self.director, self.metrics, self.decisions, self.clock)

    def ask(self, *headers: tuple[str, str]) -> tuple[PickerExchange, Decision | None]:
        """A new exchange and its answer to one request."""
        exchange = self.handler.open()
        return exchange, exchange.on_request(http_request(*headers), lambda decision: None)


class Served:
    """Metadata that says who served."""

    def __init__(self, key: str) -> None:
        self.key = key

    def namespace(self, name: str) -> dict[str, Any] | None:
        return {DESTINATION_ENDPOINT_SERVED: self.key} if name == LB_NAMESPACE else None


def graph_of(plugins: str, table: EndpointTable) -> PluginGraph:
    return load_graph(HEAD + plugins, Handle(table), registry=REQUEST_REGISTRY)


def http_request(*headers: tuple[str, str]) -> HttpRequest:
    return HttpRequest(Headers.of([(":path", "/v1/completions"), *headers]), BODY, None)


def response(*headers: tuple[str, str], served: str = "") -> HttpResponse:
    metadata = Served(served) if served else None
    return HttpResponse(Headers.of([(":status", "200"), *headers]), 200, False, metadata)


def request_of(exchange: PickerExchange) -> InferenceRequest:
    admitted: Admitted | None = exchange._admitted
    assert admitted is not None
    return admitted.request


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
    assert rig.decisions.recent()[0]["error"] == f"ResourceExhausted: {message}"


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
    rig.clock.advance(FAILURE_LOG_INTERVAL_S)
    rig.ask()[0].on_response_headers(response())
    assert "plugin 'broken' failed on response headers" in caplog.records[-2].getMessage()
    assert caplog.records[-2].getMessage().endswith("2 failures not logged")


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
