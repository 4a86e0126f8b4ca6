"""Request control: from a whole request to a destination.

The director owns the order of the stages (parse, request headers, fairness id, candidates, screeners, data
producers, admitters, schedule, pre-request) and the booking of the chosen endpoint. Everything between the
first byte of a decision and its booking happens in one call on one thread, so two requests of a burst never
decide on the same view of the load.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from time import perf_counter
from typing import Final
from uuid import uuid4

from dataplane.clock import Clock
from dataplane.errors import BadRequestError, RequestError, ResourceExhaustedError, ServiceUnavailableError
from dataplane.extproc.events import Metadata
from dataplane.extproc.exchange import HttpRequest, HttpResponse
from dataplane.headers import (
    CONTENT_ENCODING,
    CONTROL_HEADERS,
    FAIRNESS_ID,
    FORWARDED_PATH,
    OBJECTIVE,
    ORIGINAL_PATH,
    REQUEST_ID,
    Headers,
)
from dataplane.plugin.base import TypedName
from epp.candidates import common, locate
from epp.conditional_decode import ConditionalDecode, wants_only_cached
from epp.graph import PluginGraph
from epp.interfaces.endpoint import Booking, Candidates, EndpointTable
from epp.interfaces.request import InferenceRequest, ParsedBody, ResponseSummary
from epp.interfaces.request_control import Parser, Preparer, ResponseHead
from epp.interfaces.scheduling import SchedulingResult
from epp.metrics import EppMetrics
from epp.model_names import ModelNames
from epp.objects.snapshot import ObjectHolder
from epp.plugin_failures import PluginFailures
from epp.reporting import ResponseReporting
from epp.resilience.guard import Guard, Trials
from epp.scheduling.profile import recorder
from epp.scheduling.scheduler import Scheduler
from epp.tracing.scheduler import TracedScheduler

DEFAULT_PATH: Final = "/v1/completions"
MAX_REQUEST_ID_BYTES: Final = 256
"""Longer ids are cut in logs and records; the header itself is forwarded as it came."""
PREPARER_POINT: Final = "Preparer"
PRODUCER_POINT: Final = "DataProducer"
SATURATION_POINT: Final = "SaturationDetector"
RESPONSE_HEADER_POINT: Final = "ResponseHeaderProcessor"


class Admitted:
    """A decided request: where it goes, what is booked for it, and headers that plugins set."""

    __slots__ = ("booking", "parser", "prefill_booking", "request", "result", "set_headers", "trials")

    def __init__(
        self,
        request: InferenceRequest,
        parser: Parser | None,
        result: SchedulingResult,
        booking: Booking,
        set_headers: dict[str, str],
        prefill_booking: Booking | None = None,
    ) -> None:
        self.request = request
        self.parser = parser
        self.result = result
        self.booking = booking
        self.set_headers = set_headers
        self.prefill_booking = prefill_booking
        """What is booked where another endpoint computes the prompt; None when that is done or not so."""
        self.trials: Trials = ()
        """Endpoints of which the outcome of this request says whether they are back."""


class Director:
    """Decides for one pool with one plugin graph."""

    def __init__(
        self,
        table: EndpointTable,
        graph: PluginGraph,
        metrics: EppMetrics,
        clock: Clock,
        *,
        objects: ObjectHolder | None = None,
        rng: random.Random | None = None,
        use_subset: bool = True,
        with_spans: bool = False,
        revision: str = "",
        guard: Guard | None = None,
    ) -> None:
        self.revision = revision
        """Names the configuration that decides here."""
        self.table = table
        self.graph = graph
        self._metrics = metrics
        self._clock = clock
        self._objects = objects or ObjectHolder()
        rng = rng or random.Random()  # noqa: S311 - shares out requests, no secret
        self._names = ModelNames(self._objects, rng, metrics, clock)
        self._use_subset = use_subset
        timings = metrics.plugin_timings
        self._guard = guard
        resilience = graph.config.resilience
        self._named_endpoints = resilience.fallback_endpoints if guard is not None else 1
        slow_start = guard.slow_start if guard is not None and resilience.slow_start.enabled else None
        hold_back = slow_start.hold_back if slow_start is not None else None
        self._scheduler = Scheduler(graph, timings=timings, hold_back=hold_back)
        self._traced_scheduler = TracedScheduler(graph, timings, hold_back) if with_spans else None
        self._read_headers = [
            (p.process_request_headers, recorder(timings, "RequestHeaderProcessor", p))
            for p in graph.request_header_processors
        ]
        self._conditional = ConditionalDecode(graph)
        self.prefix_match = self._conditional.match
        """What the configuration's prefix producer knows of a request's prompt."""
        self._screeners = [(p.screen, recorder(timings, "Screener", p)) for p in graph.screeners]
        self._detector = graph.saturation_detector
        self._record_saturation = recorder(timings, SATURATION_POINT, self._detector)
        self._admitters = [(p.admit, recorder(timings, "Admitter", p)) for p in graph.admitters]
        self._response_headers = [
            (p, recorder(timings, RESPONSE_HEADER_POINT, p)) for p in graph.response_header_processors
        ]
        self.sets_response_headers = bool(self._response_headers)
        """Whether ``response_headers`` has anybody to ask."""
        self._failures = PluginFailures(metrics, clock)
        reporters = graph.response_reporters
        self.reporting = ResponseReporting(reporters, timings, self._failures) if reporters else None
        """Whom to ask when a response body has ended; None when there is nobody."""
        self.all_preparers = [p for p in graph.producers if isinstance(p, Preparer) and p.prepares]
        """Producers that some requests have to wait for."""
        self._produce = [(p, recorder(timings, PRODUCER_POINT, p)) for p in graph.producers]
        self._pre_request = [(p.pre_request, recorder(timings, "PreRequest", p)) for p in graph.pre_requests]

    def parse(self, http: HttpRequest) -> tuple[InferenceRequest, Parser | None]:
        """The request as plugins see it. ``BadRequestError`` when its parser refuses the body."""
        headers = http.headers
        path = request_path(headers)
        parser: Parser | None = None
        body = http.body or b""
        parsed = ParsedBody()
        if body or (http.body is not None and headers.get(":method") == "POST"):
            parser = self.graph.parser_for(path)
            try:
                parsed = parser.parse(headers, path, body)
            except BadRequestError as error:
                raise _compressed(headers) or error from None
        request = InferenceRequest(_request_id(headers), path, headers, body, parsed, self._clock())
        request.objective = headers.control(OBJECTIVE)
        request.priority = self._objects.current.priority_of(request.objective)
        self._names.apply(request, parser)
        for read, record in self._read_headers:
            start = perf_counter()
            read(request)
            record(perf_counter() - start)
        request.fairness_id = headers.control(FAIRNESS_ID) or request.fairness_id
        return request, parser

    def unparsed(self, http: HttpRequest) -> InferenceRequest:
        """A request that ``parse`` refuses, for the records: nothing is known of what is in it."""
        headers = http.headers
        path = request_path(headers)
        return InferenceRequest(_request_id(headers), path, headers, b"", ParsedBody(), self._clock())

    def preparers(self, request: InferenceRequest) -> list[Preparer]:
        """Those of all preparers whose data the request has to wait for."""
        return [preparer for preparer in self.all_preparers if preparer.needs_preparation(request)]

    async def prepare(self, request: InferenceRequest, preparers: Sequence[Preparer]) -> None:
        """Wait for their data. What fails is missing."""
        request.stage = "preparation"
        for preparer in preparers:
            try:
                await preparer.prepare(request)
            except Exception as error:  # noqa: BLE001 - who reads the data can do without; the request goes on
                cost = "so its data is missing and the request goes on without"
                self._failures.note(PREPARER_POINT, preparer, cost, error)

    def admit(self, request: InferenceRequest, parser: Parser | None, http: HttpRequest) -> Admitted:
        """Choose endpoints; book the primary, and the one that computes the prompt for it.

        After a ``RequestError`` nothing is booked.
        """
        request.stage = "candidates"
        trace, guard, hint = request.trace, self._guard, http.metadata if self._use_subset else None
        if guard is not None:
            guard.begin()
        candidates = locate(self.table, hint)
        if trace is not None:
            trace.located(self.table, candidates, self._clock())
        if not len(candidates):
            raise ServiceUnavailableError("failed to find endpoint candidates for serving the request")
        if request.priority < 0:
            self._refuse_when_full(request, candidates)
        try:
            candidates = self._prepare_data(request, candidates)
        except ServiceUnavailableError as error:
            candidates = self._prepare_among_all(request, hint, error)
        request.stage = "admission"
        for (admit, record), plugin in zip(self._admitters, self.graph.admitters, strict=True):
            start = perf_counter()
            denial = admit(request, candidates)
            record(perf_counter() - start)
            if trace is not None:
                trace.admitted(plugin, candidates, denial)
            if denial is not None:
                raise ResourceExhaustedError(f"request cannot be admitted: {denial}")
        request.stage = "scheduling"
        try:
            result = self._schedule(request, candidates)
        except (ResourceExhaustedError, ServiceUnavailableError) as error:
            candidates = self._prepare_among_all(request, hint, error)
            request.stage = "scheduling"
            result = self._schedule(request, candidates)
        if wants_only_cached(request.headers):
            request.stage = "conditional decode"
            self._conditional.check(request, result)
        request.stage = "pre-request"
        set_headers = self._prepare(request, result)
        booking = self.table.book(result.endpoints[0])
        prefill = result.prefill_endpoint
        prefill_booking = None if prefill is None else self.table.book(prefill)
        admitted = Admitted(request, parser, result, booking, set_headers, prefill_booking)
        if guard is not None:
            admitted.trials = guard.sent(result)
        return admitted

    def _refuse_when_full(self, request: InferenceRequest, candidates: Candidates) -> None:
        """Negative priority means: while there is room. ``ResourceExhaustedError`` when there is none."""
        request.stage = "saturation"
        start = perf_counter()
        saturation = self._detector.saturation_of(candidates)
        self._record_saturation(perf_counter() - start)
        denial = f"the pool is {saturation:.0%} full" if saturation >= 1.0 else None
        if request.trace is not None:
            request.trace.admitted(self._detector, candidates, denial)
        if denial is not None:
            raise ResourceExhaustedError("system saturated, sheddable request dropped")

    def _prepare_data(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """Screen the candidates and let data be produced for those that are left."""
        if self._screeners:
            request.stage = "screening"
            candidates = self._screen(request, candidates)
        request.stage = "data producers"
        for producer, record in self._produce:
            start = perf_counter()
            try:
                producer.produce(request, candidates)
            except RequestError:
                raise
            except Exception as error:  # noqa: BLE001 - who reads the data can do without; the request goes on
                cost = "so its data is missing and the request goes on without"
                self._failures.note(PRODUCER_POINT, producer, cost, error)
            record(perf_counter() - start)
        return candidates

    def _prepare_among_all(
        self, request: InferenceRequest, hint: Metadata | None, error: RequestError
    ) -> Candidates:
        """Nobody is left for the request: begin again with those ejected; ``error`` when nobody is.

        When all endpoints of the kind that a request needs are ejected, a doubtful one is better than none.
        """
        if not self.table.barred:
            raise error
        candidates = locate(self.table, hint, ejected_too=True)
        if request.trace is not None:
            request.trace.located(self.table, candidates, self._clock())
        return self._prepare_data(request, candidates)

    def _screen(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """What every screener keeps of the candidates. ``ServiceUnavailableError`` when that is nobody."""
        kept: list[Candidates] = []
        for screen, record in self._screeners:
            start = perf_counter()
            kept.append(screen(request, candidates))
            record(perf_counter() - start)
            if request.trace is not None:
                plugin = self.graph.screeners[len(kept) - 1]
                request.trace.screened(plugin, request, candidates, kept[-1])
        left = common(candidates, kept)
        if not len(left):
            raise ServiceUnavailableError("screeners eliminated all endpoint candidates")
        return left

    def _schedule(self, request: InferenceRequest, candidates: Candidates) -> SchedulingResult:
        start = perf_counter()
        try:
            if self._traced_scheduler is None or request.spans is None:
                result = self._scheduler.schedule(request, candidates)
            else:
                result = self._traced_scheduler.schedule(request, candidates)
        except RequestError:
            self._metrics.schedule_failed(request.target_model)
            if request.trace is not None:
                request.trace.decided(request, candidates, self.graph.profiles, None)
            raise
        if self._named_endpoints > 1 and self._guard is not None:
            result.fallbacks = self._guard.runners_up(result, self._named_endpoints)
        self._metrics.scheduled(perf_counter() - start, request.target_model, result.endpoints[0])
        if request.trace is not None:
            request.trace.decided(request, candidates, self.graph.profiles, result)
        if result.decision:
            name: TypedName = self.graph.profile_handler.name  # type: ignore[attr-defined]  # all have one
            self._metrics.decided_in_stages(name, request.target_model, result.decision, result.left_out)
        return result

    def _prepare(self, request: InferenceRequest, result: SchedulingResult) -> dict[str, str]:
        """Tell the pre-request plugins; if one fails, those already told hear that the request is over."""
        set_headers: dict[str, str] = {}
        try:
            for pre_request, record in self._pre_request:
                start = perf_counter()
                pre_request(request, result, set_headers)
                record(perf_counter() - start)
        except BaseException:
            self.tell_end(request, ResponseSummary(cause="error"))
            raise
        return set_headers

    def served_by(self, admitted: Admitted, key: str) -> None:
        """Envoy says another endpoint than the first served it: the booking follows."""
        served = self.table.at(key)
        if served is not None and served.slot != admitted.booking.slot:
            self.table.release(admitted.booking)
            admitted.booking = self.table.book(served)

    def answered(self, admitted: Admitted, response: HttpResponse, served: str) -> None:
        """Response headers have come, and Envoy may have said who served: endpoints are judged by that."""
        if self._guard is not None:
            trials, admitted.trials = admitted.trials, ()
            self._guard.answered(admitted.result, trials, response.status, served, response.headers)

    def response_headers(
        self, admitted: Admitted, response: HttpResponse, served: str
    ) -> list[tuple[str, bytes]]:
        """Headers that plugins set for the client; of one that fails, none."""
        head = ResponseHead(response.status, response.headers, admitted.result, served, response.metadata)
        changes: dict[str, bytes] = {}
        for plugin, record in self._response_headers:
            start = perf_counter()
            set_headers: dict[str, str] = {}
            try:
                plugin.process_response_headers(admitted.request, head, set_headers)
                changes |= {name: _header_value(name, value) for name, value in set_headers.items()}
            except Exception as error:  # noqa: BLE001 - a plugin's defect must not cost the client its response
                cost = "so the response passes without its headers"
                self._failures.note(RESPONSE_HEADER_POINT, plugin, cost, error)
            record(perf_counter() - start)
        return [(name, value) for name, value in changes.items() if name not in CONTROL_HEADERS]

    def first_byte(self, admitted: Admitted) -> None:
        """The response body has begun, so the prompt is computed."""
        self._release_prefill(admitted)
        for plugin in self.graph.first_byte_observers:
            plugin.on_first_byte(admitted.request)

    def finish(self, admitted: Admitted, summary: ResponseSummary) -> None:
        """The response is over: release the booking and tell the plugins. Exactly once per admission."""
        self.table.release(admitted.booking)
        self._release_prefill(admitted)
        if admitted.trials and self._guard is not None:
            self._guard.unanswered(admitted.trials)
        self.tell_end(admitted.request, summary)

    def _release_prefill(self, admitted: Admitted) -> None:
        booking, admitted.prefill_booking = admitted.prefill_booking, None
        if booking is not None:
            self.table.release(booking)

    def tell_end(self, request: InferenceRequest, summary: ResponseSummary) -> None:
        """Run every response observer, even if one of them fails; the first failure is raised at the end."""
        failure: Exception | None = None
        for plugin in self.graph.response_observers:
            try:
                plugin.on_response_end(request, summary)
            except Exception as error:  # noqa: BLE001 - the other ledgers must still be settled
                failure = failure or error
        if failure is not None:
            raise failure


def _request_id(headers: Headers) -> str:
    """The client's or Envoy's; else a new one."""
    return headers.get(REQUEST_ID)[:MAX_REQUEST_ID_BYTES] or str(uuid4())


def _compressed(headers: Headers) -> BadRequestError | None:
    """What is the matter with a body that cannot be read, if it is compressed."""
    coding = headers.get(CONTENT_ENCODING).lower()
    if coding in {"", "identity"}:
        return None
    return BadRequestError(f"the request body is compressed ({coding[:40]!r}); send it as it is")


def _header_value(name: str, value: str) -> bytes:
    """The value as bytes. ``ValueError`` for what would break the message's framing."""
    if not value.isprintable():
        raise ValueError(f"the value of header {name} has characters that no header may have")
    return value.encode()


def request_path(headers: Headers) -> str:
    """The path that chooses the parser: ``:path``, else what an earlier hop kept of it; without query."""
    path = headers.get(":path") or headers.get(ORIGINAL_PATH) or headers.get(FORWARDED_PATH) or DEFAULT_PATH
    return path.partition("?")[0]
