"""One request's life in the picker: the exchange that Envoy's ext_proc stream drives.

Reads top to bottom: the request is parsed, admitted and answered with a destination; the response is
watched for the served endpoint, the first byte and usage; at the end everything booked is released. What
a client or a model server sends never ends in more than a rejection of this one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from dataplane.clock import Clock
from dataplane.errors import RequestError
from dataplane.extproc.events import BodyTransform, MetadataValues, Proceed, Reject
from dataplane.extproc.exchange import Decision, Ending, HttpRequest, HttpResponse, Resume
from dataplane.headers import (
    BODY_DIGESTS,
    CONTROL_HEADERS,
    DESTINATION_ENDPOINT,
    DESTINATION_ENDPOINT_SCORES,
    DESTINATION_ENDPOINT_SERVED,
    EXPLAIN,
    GRPC_STATUS,
    LB_NAMESPACE,
    REQUEST_ID,
    STRIPPED_UPSTREAM,
    WENT_INTO_RESPONSE_HEADERS,
)
from epp.decisions import DecisionLog, DecisionRecord, clean
from epp.director import Admitted, Director
from epp.explain.policy import ExplainPolicy
from epp.interfaces.request import InferenceRequest, ResponseSummary
from epp.interfaces.request_control import Parser, Preparer, ResponseReader
from epp.interfaces.spans import RequestSpans, RequestTracer
from epp.metrics import EppMetrics, RequestMetrics
from epp.metrics.snapshot import MODEL_SERVER_ERROR
from epp.model_names import plain_answer, restorer
from epp.usage import UsageLog

MAX_CACHED_ANSWERS: Final = 4096
"""Destinations whose encoded answer is kept; the cache starts over beyond."""

_RESPONSE_SEEN: Final = Proceed(set_headers=((WENT_INTO_RESPONSE_HEADERS, b"true"),))


class PickerHandler:
    """What all exchanges of one picker share. ``open`` makes the exchange of a new stream."""

    def __init__(
        self,
        director: Director,
        metrics: EppMetrics,
        decisions: DecisionLog,
        clock: Clock,
        *,
        emit_scores: bool = False,
        explain: ExplainPolicy | None = None,
        tracer: RequestTracer | None = None,
        usage: UsageLog | None = None,
        may_wait: bool = True,
    ) -> None:
        self.director = director
        self.metrics = metrics
        self.decisions = decisions
        self.clock = clock
        self.emit_scores = emit_scores
        self.explain = explain
        """Says which decisions are traced; None = none ever is."""
        self.tracer = tracer
        self.usage = usage
        """Books every request that is over; None = nobody does."""
        self.may_wait = may_wait
        """Whether requests are prepared that need it; otherwise they are decided without."""
        self._answers: dict[str, Proceed] = {}

    def open(self) -> PickerExchange:
        """The exchange of one stream, on the director that is current now."""
        return PickerExchange(self, self.director)

    def answer(self, admitted: Admitted) -> Proceed:
        """Destination in header and metadata, byte-identical, and what must not reach the model server."""
        endpoints = admitted.result.destinations
        destination = endpoints[0].key if len(endpoints) == 1 else ",".join(e.key for e in endpoints)
        destination = admitted.set_headers.get(DESTINATION_ENDPOINT, destination)
        request = admitted.request
        body, request.new_body = request.new_body, None
        remove = request.headers.present(STRIPPED_UPSTREAM)
        has_id = bool(request.headers.raw(REQUEST_ID))
        if body is None and has_id and not remove and not admitted.set_headers and not self.emit_scores:
            return self._plain_answer(destination)
        metadata: dict[str, object] = {DESTINATION_ENDPOINT: destination}
        if self.emit_scores:
            metadata[DESTINATION_ENDPOINT_SCORES] = self._scores(admitted)
        changes = {**admitted.set_headers, DESTINATION_ENDPOINT: destination}
        if body is not None:
            changes |= plain_answer(request)
            remove += request.headers.present(BODY_DIGESTS)
        if not has_id:
            changes[REQUEST_ID] = request.request_id
        return Proceed(
            set_headers=[(name, value.encode()) for name, value in changes.items()],
            remove_headers=[name for name in remove if name not in changes],
            metadata={LB_NAMESPACE: metadata},
            clear_route_cache=True,
            body=body,
        )

    def _plain_answer(self, destination: str) -> Proceed:
        answer = self._answers.get(destination)
        if answer is None:
            if len(self._answers) >= MAX_CACHED_ANSWERS:
                self._answers.clear()
            answer = self._answers[destination] = Proceed(
                set_headers=((DESTINATION_ENDPOINT, destination.encode()),),
                metadata={LB_NAMESPACE: {DESTINATION_ENDPOINT: destination}},
                clear_route_cache=True,
            )
        return answer

    @staticmethod
    def _scores(admitted: Admitted) -> dict[str, float]:
        primary = admitted.result.results[admitted.result.primary]
        keys = [endpoint.key for endpoint in primary.candidates.endpoints]
        return dict(zip(keys, primary.totals.tolist(), strict=True))


class PickerExchange:
    """One request and its response."""

    __slots__ = (
        "_admitted",
        "_director",
        "_explanation",
        "_handler",
        "_is_booked",
        "_last_chunk_at",
        "_metrics",
        "_preparing",
        "_reader",
        "_record",
        "_spans",
        "_started_at",
        "_summary",
        "observes_response_body",
    )
    needs_request_body = True

    def __init__(self, handler: PickerHandler, director: Director) -> None:
        self._handler = handler
        self._director = director
        self._admitted: Admitted | None = None
        self._metrics: RequestMetrics | None = None
        self._reader: ResponseReader | None = None
        self._record: DecisionRecord | None = None
        self._explanation: bytes | None = None
        """The decision in one line, for a client that asked for it."""
        self._spans: RequestSpans | None = None
        self._preparing: asyncio.Task[None] | None = None
        """Decides when what the request waits for is there."""
        self._summary = ResponseSummary()
        self._started_at = 0.0
        self._last_chunk_at = 0.0
        self._is_booked = False
        self.observes_response_body = True

    def on_request(self, request: HttpRequest, resume: Resume) -> Decision | None:
        """Pick. Every failure is counted under its code and recorded with its reason."""
        explain = self._handler.explain
        started = perf_counter()
        self._started_at = self._handler.clock()
        inference: InferenceRequest | None = None
        tracer = self._handler.tracer
        spans = self._spans = None if tracer is None else tracer.begin(request.headers)
        try:
            inference, parser = self._director.parse(request)
            if explain is not None:
                explain.consider(inference)
            if spans is not None and spans.is_recording:
                inference.spans = spans
            self._metrics = self._handler.metrics.for_request(
                inference.model, inference.target_model, inference.fairness_id, inference.priority
            )
            director = self._director
            preparers = director.preparers(inference) if director.all_preparers else ()
            if not preparers or not self._handler.may_wait:
                return self._decide(inference, parser, request, started)
        except Exception as error:  # noqa: BLE001 - it is counted and raised again
            return self._refuse(inference, request, error, started)
        later = self._decide_later(preparers, inference, parser, request, started, resume)
        self._preparing = asyncio.get_running_loop().create_task(later)
        return None

    async def _decide_later(
        self,
        preparers: Sequence[Preparer],
        inference: InferenceRequest,
        parser: Parser | None,
        request: HttpRequest,
        started: float,
        resume: Resume,
    ) -> None:
        """Decide when what the request needs is there."""
        await self._director.prepare(inference, preparers)
        self._preparing = None
        outcome: Decision | Exception
        try:
            try:
                outcome = self._decide(inference, parser, request, started)
            except Exception as error:  # noqa: BLE001 - it is counted and raised again
                outcome = self._refuse(inference, request, error, started)
        except Exception as error:  # noqa: BLE001 - it is the session's, as if it had been raised at once
            outcome = error
        resume(outcome)

    def _stop_preparing(self) -> None:
        preparing, self._preparing = self._preparing, None
        if preparing is not None:
            preparing.cancel()

    def _decide(
        self, inference: InferenceRequest, parser: Parser | None, request: HttpRequest, started: float
    ) -> Proceed:
        admitted = self._admitted = self._director.admit(inference, parser, request)
        return self._answer(inference, admitted, started)

    def _refuse(
        self, inference: InferenceRequest | None, request: HttpRequest, error: Exception, started: float
    ) -> Reject:
        """Count and record what ended the request; raises it unless the client is told more."""
        if not isinstance(error, RequestError):
            self._note_defect(inference, request, error, started)
            raise error
        record = self._fail(inference, request, error, started)
        explain = self._handler.explain
        if explain is not None and explain.is_asked(request.headers):
            return explain.rejection(error, record)
        raise error

    def _answer(self, request: InferenceRequest, admitted: Admitted, started: float) -> Proceed:
        """Count and record an admitted request; where it goes."""
        explain, spans = self._handler.explain, self._spans
        if self._metrics is not None:
            self._metrics.started(len(request.body))
        self._summary.streaming = request.parsed.stream
        duration = perf_counter() - started
        self._handler.metrics.processed_request(duration)
        record = self._note(request, duration, admitted)
        if request.trace is not None and explain is not None and explain.is_asked(request.headers):
            self._explanation = explain.line(record)
        if spans is not None:
            record.trace_id = spans.trace_id
            admitted.set_headers.update(spans.propagation)
            spans.decided(request, admitted.result.endpoints[0].key)
        return self._handler.answer(admitted)

    def _fail(
        self, request: InferenceRequest | None, http: HttpRequest, error: RequestError, started: float
    ) -> DecisionRecord:
        metrics = self._metrics or self._handler.metrics.for_request("", "", "", 0)
        metrics.error(error.code)
        spans, self._spans = self._spans, None
        if spans is not None:
            spans.refused(request, error)
        if request is None:
            request = self._director.unparsed(http)
        record = self._note(request, perf_counter() - started, None)
        if spans is not None:
            record.trace_id = spans.trace_id
        record.error = f"{error.code}: {error.message}"
        record.stage = request.stage
        record.status = error.status
        record.ending = Ending.REJECTED.value
        return record

    def _note_defect(
        self, request: InferenceRequest | None, http: HttpRequest, error: Exception, started: float
    ) -> None:
        """A plugin failed where none may: the client is answered 500, which the record says and why."""
        if request is None:
            request = self._director.unparsed(http)
        record = self._record
        if record is None or not record.number:  # the record itself may be what could not be made
            record = self._note(request, perf_counter() - started, None)
        if self._spans is not None:
            record.trace_id = self._spans.trace_id
        record.error = clean(f"Internal: {type(error).__name__}: {error}")
        record.stage = request.stage
        record.status = 500
        record.ending = Ending.ERROR.value

    def _note(self, request: InferenceRequest, duration: float, admitted: Admitted | None) -> DecisionRecord:
        match = self._director.prefix_match(request)
        record = self._record = DecisionRecord(
            request_id=request.request_id,
            decided_at=0.0,
            model=request.model,
            target_model=request.target_model,
            priority=request.priority,
            fairness_id=request.fairness_id,
            prompt_bytes=len(request.parsed.prompt_text),
            duration_s=duration,
            config=self._director.revision,
            trace=request.trace,
        )
        if admitted is not None:
            record.result = admitted.result
            if match is not None:
                record.total_blocks, record.block_size = match.total, match.block_size
                slots, slot = match.candidates.slots, admitted.booking.slot
                position = int(slots.searchsorted(slot))
                # A profile handler may go beyond the endpoints that were matched.
                if position < slots.size and slots[position] == slot:
                    record.matched_blocks = match.matched.item(position)
                self._handler.metrics.prefix_matched(
                    record.matched_blocks, record.total_blocks, record.block_size
                )
        self._handler.decisions.add(record)
        return record

    def on_response_headers(self, response: HttpResponse) -> Decision:
        """Note status and served endpoint, and choose how the body is read."""
        started = perf_counter()
        summary = self._summary
        summary.status = response.status
        if self._preparing is not None:
            self._stop_preparing()
        if b"text/event-stream" in (response.headers.raw("content-type") or b""):
            summary.streaming = True
        admitted = self._admitted
        if admitted is not None:
            self._note_served(admitted, response)
            self._director.answered(admitted, response, summary.served)
            self._choose_reader(admitted, response)
        stale = response.headers.present(CONTROL_HEADERS)
        added: list[tuple[str, bytes]] = []
        transform: BodyTransform | None = None
        if admitted is not None and admitted.request.target_model is not admitted.request.model:
            transform = restorer(admitted.request, admitted.parser, response.headers)
        if admitted is not None and self._director.sets_response_headers:
            added = self._director.response_headers(admitted, response, summary.served)
        if self._explanation is not None:
            added.append((EXPLAIN, self._explanation))
            stale = [name for name in stale if name != EXPLAIN]
        self._handler.metrics.processed_response(perf_counter() - started)
        if transform is not None:
            stale += response.headers.present(BODY_DIGESTS)
        if stale or added or transform is not None:
            set_headers = [*_RESPONSE_SEEN.set_headers, *added]
            return Proceed(set_headers=set_headers, remove_headers=stale, transform=transform)
        return _RESPONSE_SEEN

    def _choose_reader(self, admitted: Admitted, response: HttpResponse) -> None:
        # A gRPC call that fails before its first message says so in the head, with HTTP status 200.
        if 200 <= response.status < 300 and response.headers.get(GRPC_STATUS, "0") == "0":
            if admitted.parser is not None:
                self._reader = admitted.parser.response_reader(self._summary.streaming)
        elif self._metrics is not None:
            self._metrics.error(MODEL_SERVER_ERROR)

    def _note_served(self, admitted: Admitted, response: HttpResponse) -> None:
        if response.metadata is None:
            return
        values = response.metadata.namespace(LB_NAMESPACE)
        served = values.get(DESTINATION_ENDPOINT_SERVED) if values else None
        if isinstance(served, str) and served:
            if served == admitted.set_headers.get(DESTINATION_ENDPOINT):
                served = admitted.result.endpoints[0].key  # a plugin had it reached at that address
            self._summary.served = served
            self._director.served_by(admitted, served)

    def on_response_chunk(self, chunk: bytes, end: bool) -> MetadataValues | None:
        """First byte, gaps between chunks, and whatever the parser's reader finds; reports at the end."""
        admitted, metrics = self._admitted, self._metrics
        if admitted is None or metrics is None:
            return None
        if chunk:
            self._note_chunk(chunk, admitted, metrics)
        reporting = self._director.reporting
        if not end or (reporting is None and self._handler.usage is None):
            return None
        self._finish_reading()
        self._book(admitted)
        return None if reporting is None else reporting.report(admitted.request, self._summary.usage)

    def _book(self, admitted: Admitted) -> None:
        """Count what the request used: before its last byte goes on, or when it broke off. Once."""
        usage = self._handler.usage
        if usage is None or self._is_booked:
            return
        self._is_booked = True
        self._summary.duration_s = self._handler.clock() - self._started_at
        usage.book(admitted.request, self._summary, self._director.revision)

    def _note_chunk(self, chunk: bytes, admitted: Admitted, metrics: RequestMetrics) -> None:
        summary = self._summary
        now = self._handler.clock()
        if summary.ttft_s is None:
            summary.ttft_s = now - self._started_at
            self._director.first_byte(admitted)
            if summary.streaming:
                metrics.first_byte(summary.ttft_s)
        elif summary.streaming:
            metrics.chunk_gap(now - self._last_chunk_at)
        self._last_chunk_at = now
        summary.response_bytes += len(chunk)
        if self._reader is not None:
            self._reader.feed(chunk)

    def on_end(self, ending: Ending) -> None:
        """Settle everything that was booked for this request."""
        summary = self._summary
        summary.cause = ending.value if ending in (Ending.NATURAL, Ending.DISCONNECT) else "error"
        if self._preparing is not None:
            self._stop_preparing()
        admitted, self._admitted = self._admitted, None
        spans, self._spans = self._spans, None
        try:
            if admitted is not None:
                self._settle(admitted, summary)
        finally:
            if spans is not None:
                spans.ended(summary)

    def _settle(self, admitted: Admitted, summary: ResponseSummary) -> None:
        try:
            self._finish_reading()
        finally:
            self._book(admitted)
            summary.duration_s = self._handler.clock() - self._started_at
            self._director.finish(admitted, summary)
            if self._metrics is not None:
                self._metrics.finished(summary)
            self._complete_record(summary)

    def _finish_reading(self) -> None:
        """The body has ended or broken off: what its reader has found. Once."""
        reader, self._reader = self._reader, None
        if reader is not None:
            self._summary.usage = reader.finish()
            self._summary.events = reader.events

    def _complete_record(self, summary: ResponseSummary) -> None:
        record = self._record
        if record is None:
            return
        record.status = summary.status or record.status
        record.served = summary.served
        record.ending = summary.cause
        record.ttft_s = summary.ttft_s
        record.cached_tokens = summary.usage.cached_tokens if summary.usage else None
