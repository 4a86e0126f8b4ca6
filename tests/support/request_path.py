"""A picker's request path without a transport: one request in, its answer and that to its response out."""

from __future__ import annotations

import random
from typing import Any

from dataplane.clock import SYSTEM_CLOCK, Clock
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Decision, HttpRequest, HttpResponse
from dataplane.headers import DESTINATION_ENDPOINT, DESTINATION_ENDPOINT_SERVED, LB_NAMESPACE, Headers
from epp.decisions import DecisionLog
from epp.director import Admitted, Director
from epp.explain.policy import ExplainPolicy
from epp.graph import PluginGraph, load_graph
from epp.handler import PickerExchange, PickerHandler
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.metrics import EppMetrics
from epp.objects.snapshot import ObjectHolder
from epp.resilience.guard import Guard
from tests.support.clock import ManualClock
from tests.support.pool import make_table
from tests.support.request_plugins import REQUEST_REGISTRY

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"
BODY = b'{"model": "m", "prompt": "hello"}'


class Rig:
    """A request path over two endpoints, or those of a table, with these plugins."""

    def __init__(
        self, plugins: str, table: EndpointTable | None = None, explain: ExplainPolicy | None = None
    ) -> None:
        self.table = make_table(2) if table is None else table
        self.clock = ManualClock()
        self.table.updated_at[:] = self.clock()
        self.graph = graph_of(plugins, self.table, self.clock)
        self.metrics = EppMetrics(self.table, "pool")
        self.objects = ObjectHolder()
        self.guard = Guard(
            self.table, self.clock, random.Random(0), self.metrics.numbers, self.graph.config.resilience
        )
        self.director = Director(
            self.table, self.graph, self.metrics, self.clock, objects=self.objects, guard=self.guard
        )
        self.decisions = DecisionLog(10)
        self.handler = PickerHandler(self.director, self.metrics, self.decisions, self.clock, explain=explain)

    def ask(self, *headers: tuple[str, str], body: bytes = BODY) -> tuple[PickerExchange, Decision | None]:
        """A new exchange and its answer to one request."""
        exchange = self.handler.open()
        return exchange, exchange.on_request(http_request(*headers, body=body), lambda decision: None)


class Served:
    """Metadata that says who served."""

    def __init__(self, key: str) -> None:
        self.key = key

    def namespace(self, name: str) -> dict[str, Any] | None:
        return {DESTINATION_ENDPOINT_SERVED: self.key} if name == LB_NAMESPACE else None


def graph_of(plugins: str, table: EndpointTable, clock: Clock = SYSTEM_CLOCK) -> PluginGraph:
    """The graph of these plugins, test plugins and experimental ones included."""
    return load_graph(
        HEAD + plugins, Handle(table, clock), registry=REQUEST_REGISTRY, allow_experimental=True
    )


def http_request(*headers: tuple[str, str], body: bytes = BODY) -> HttpRequest:
    """A whole completion request."""
    return HttpRequest(Headers.of([(":path", "/v1/completions"), *headers]), body, None)


def response(*headers: tuple[str, str], status: int = 200, served: str = "") -> HttpResponse:
    """The head of a response, which Envoy may say who served."""
    metadata = Served(served) if served else None
    return HttpResponse(Headers.of([(":status", str(status)), *headers]), status, False, metadata)


def request_of(exchange: PickerExchange) -> InferenceRequest:
    """The request of an exchange that has an endpoint."""
    admitted: Admitted | None = exchange._admitted
    assert admitted is not None
    return admitted.request


def destination(decision: Decision | None) -> str:
    """Where an answer sends its request."""
    assert isinstance(decision, Proceed)
    return dict(decision.set_headers)[DESTINATION_ENDPOINT].decode()


def set_headers(decision: Decision) -> dict[str, bytes]:
    """Headers an answer sets."""
    assert isinstance(decision, Proceed)
    return dict(decision.set_headers)
