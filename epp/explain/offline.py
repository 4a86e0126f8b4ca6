"""One decision without a running picker: the parts of a picker, a request and what is known of the endpoints.

The graph, the assembly, the director and the handler are those that serve requests, so the outcome is what a
picker would have decided on the same data. Nothing is opened but the files named: no port, no connection, no
name is looked up. What a picker has learnt from earlier requests (prefixes, sessions) starts empty;
``warm`` sends the request itself to an endpoint first, as an earlier one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import replace
from typing import Any, ClassVar, Final

import msgspec

from dataplane.config.problems import ConfigErrors
from dataplane.config.reload import revision_of
from dataplane.errors import ConfigError, RequestError, did_you_mean
from dataplane.extproc.exchange import Ending, HttpRequest, HttpResponse
from dataplane.files import read_regular_file
from dataplane.headers import (
    DESTINATION_ENDPOINT_SUBSET,
    REQUEST_ID,
    SUBSET_NAMESPACE,
    Headers,
)
from dataplane.plugin.base import PluginInfo, TypedName
from dataplane.plugin.registry import PluginRegistry
from epp.assembly import Assembler
from epp.decisions import DecisionLog
from epp.director import DEFAULT_PATH
from epp.explain.policy import ExplainPolicy
from epp.explain.snapshot import EndpointState, Snapshot, apply_states, read_snapshot
from epp.graph import PluginGraph, load_graph
from epp.handler import PickerExchange, PickerHandler
from epp.interfaces.data_layer import DiscoveredSet
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from epp.interfaces.handle import Handle
from epp.interfaces.trace import Origin
from epp.metrics import EppMetrics
from epp.objects.documents import Scope
from epp.objects.files import ObjectFiles
from epp.objects.following import ObjectFollower
from epp.objects.snapshot import ObjectHolder
from epp.options import EppOptions
from epp.plugins.endpoint_file import read_endpoint_file
from epp.resilience.guard import Guard

MAX_CONFIG_BYTES: Final = 4 << 20
MAX_REQUEST_BYTES: Final = 1 << 30

NOW: Final = 1_000_000.0
"""The moment of the decision on its own clock."""

PATHS: Final = (
    ("messages", "/v1/chat/completions"),
    ("prompt", "/v1/completions"),
    ("input", "/v1/responses"),
)
"""The field of a body that tells the path it is sent to."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be decided, and on what."""

    request: str
    """File with the body."""
    config: str = ""
    """Empty = the built-in configuration."""
    endpoints: str = ""
    """Endpoints file; empty = those of the snapshot."""
    snapshot: str = ""
    objects: str = ""
    path: str = ""
    """Empty = what the body looks like."""
    headers: tuple[tuple[str, str], ...] = ()
    subset: str = ""
    """Addresses the proxy would allow, by comma; empty = all."""
    warm: tuple[str, ...] = ()
    """Addresses that have served the same request before."""
    seed: int = 0
    allow_experimental: bool = False


class Answer(msgspec.Struct):
    """The decision as ``/debug/decisions`` shows it, and what to know of how it came about."""

    decision: dict[str, Any]
    warnings: list[str]


class SteadyClock:
    """A clock that stands still: what is measured has its age at the moment of the decision."""

    def __call__(self) -> float:
        return NOW


class ListedEndpoints:
    """Discovery of a set that is known."""

    info: ClassVar = PluginInfo("explain")

    def __init__(self, specs: list[EndpointSpec]) -> None:
        self.name = TypedName("explain", "explain")
        self._found = DiscoveredSet(specs, [])

    def load(self) -> DiscoveredSet:
        """The set."""
        return self._found

    def poll(self) -> DiscoveredSet | None:
        """Nothing: the set stays as it is."""
        return None


class AllowedEndpoints:
    """Metadata of a proxy that allows some endpoints."""

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses

    def namespace(self, name: str) -> dict[str, Any] | None:
        """The subset hint under its name."""
        return {DESTINATION_ENDPOINT_SUBSET: self._addresses} if name == SUBSET_NAMESPACE else None


class Bench:
    """The parts of a picker over endpoints that stand still."""

    def __init__(self, question: Question, registry: PluginRegistry) -> None:
        self.question = question
        self.specs, self._states, self.warnings = _endpoints(question)
        self.body = read_regular_file(question.request, MAX_REQUEST_BYTES, path=question.request)
        self.path = question.path or path_of(self.body)
        self.table = EndpointTable()
        self.metrics = EppMetrics(self.table, "explain")
        self.objects = ObjectHolder()
        clock = SteadyClock()
        handle = Handle(self.table, clock, random.Random(question.seed))  # noqa: S311 - breaks ties, no secret
        guard = Guard(self.table, clock, handle.rng, self.metrics.numbers)
        assembler = Assembler(EppOptions(), handle, self.metrics, self.objects, guard)
        text, graph = _graph(question, handle, registry)
        self.assembly = assembler.assemble(
            replace(graph, discovery=ListedEndpoints(self.specs)), revision_of(text), None
        )
        assembler.connect(self.assembly)
        guard.configure(graph.config.resilience)
        self.decisions = DecisionLog(1)
        policy = ExplainPolicy(1.0, "off", origin=Origin.OFFLINE)
        self.handler = PickerHandler(
            self.assembly.director, self.metrics, self.decisions, clock, explain=policy, may_wait=False
        )
        self.warnings += graph.warnings
        self.warnings += [
            f"'{preparer.name.name}' asks nobody here: it does without what another process would tell"
            for preparer in self.assembly.director.all_preparers
        ]

    async def fill(self) -> None:
        """Put the endpoints and what is known of them into the table, and the objects into force."""
        await self.assembly.discovery.load()
        keys = list(self.assembly.graph.endpoint_attributes)
        self.warnings += apply_states(self.table, self._states, NOW, keys)
        if self.question.objects:
            files = ObjectFiles(self.question.objects, Scope())
            follower = ObjectFollower(files, self.objects, self.metrics.numbers)
            await follower.load()
            self.warnings += follower.problems

    def ask(self, subset: str) -> PickerExchange:
        """Decide the request among all endpoints, or those at the addresses of ``subset``."""
        headers = Headers.of(
            [(":method", "POST"), (":path", self.path), *self.question.headers, (REQUEST_ID, "explain")]
        )
        exchange = self.handler.open()
        request = HttpRequest(headers, self.body, AllowedEndpoints(subset) if subset else None)
        with contextlib.suppress(RequestError):  # the record has it
            exchange.on_request(request, lambda _: None)
        return exchange

    def warm(self, address: str) -> None:
        """Let the request have been served at ``address``. ``ConfigError`` when it would not go there."""
        if self.table.at(address) is None:
            known = [endpoint.key for endpoint in self.table.all().endpoints]
            raise ConfigError(
                f"no endpoint is at {address}{did_you_mean(address, known)}; write ip:port", path="--warm"
            )
        exchange = self.ask(address)
        decision = next(self.decisions.recent(1))
        if decision["error"]:
            raise ConfigError(f"{address} would not serve the request: {decision['error']}", path="--warm")
        exchange.on_response_headers(HttpResponse(Headers.of([(":status", "200")]), 200, False, None))
        exchange.on_response_chunk(b"{}", end=True)
        exchange.on_end(Ending.NATURAL)


def explain(question: Question, registry: PluginRegistry) -> Answer:
    """Decide. ``ConfigError`` for whatever is wrong with the files or the question."""
    return asyncio.run(_explain(Bench(question, registry)))


async def _explain(bench: Bench) -> Answer:
    await bench.fill()
    for address in bench.question.warm:
        bench.warm(address)
    bench.ask(bench.question.subset)
    found = next(bench.decisions.recent(1), None)
    if found is None:
        raise ConfigError("the decision has to wait for something, which cannot be shown without a picker")
    return Answer(found, bench.warnings)


def path_of(body: bytes) -> str:
    """The path such a body is usually sent to."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return DEFAULT_PATH
    return next((path for field, path in PATHS if field in fields), DEFAULT_PATH)


def _graph(question: Question, handle: Handle, registry: PluginRegistry) -> tuple[bytes, PluginGraph]:
    """The configuration's text and graph. ``ConfigErrors`` name the file."""
    file = question.config
    text = read_regular_file(file, MAX_CONFIG_BYTES, path=file) if file else b""
    try:
        return text, load_graph(
            text, handle, allow_experimental=question.allow_experimental, registry=registry
        )
    except ConfigErrors as errors:
        raise ConfigErrors([ConfigError(str(error), path=file) for error in errors.errors]) from None


def _endpoints(question: Question) -> tuple[list[EndpointSpec], dict[str, EndpointState], list[str]]:
    """Who is there, what is known of them, and what to warn of."""
    snapshot = read_snapshot(question.snapshot) if question.snapshot else Snapshot([], {}, [])
    if not question.endpoints:
        return snapshot.specs, snapshot.states, snapshot.warnings
    file = read_endpoint_file(question.endpoints)
    if file.host_names():
        raise ConfigError(
            "has host names, which are not looked up here; save a snapshot of a running picker instead",
            path=question.endpoints,
        )
    found = file.endpoints(lambda _: ())
    if not found.endpoints:
        listed = found.problems or ["the list is empty"]
        raise ConfigError(f"no usable endpoint: {'; '.join(listed[:5])}", path=question.endpoints)
    warnings = [*found.problems, *snapshot.warnings]
    missing = [spec.key for spec in found.endpoints if spec.key not in snapshot.states]
    if missing and snapshot.states:
        warnings.append(f"{len(missing)} endpoints are not in {question.snapshot} and count as idle")
    return found.endpoints, snapshot.states, warnings
