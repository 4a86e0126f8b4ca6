"""Spans of the OpenTelemetry SDK. Importing this module loads the SDK; only ``setup`` does.

``gateway.request`` begins with the request, since its id travels to the model server; all other spans are
made when the request is over, with the times written down meanwhile. Finished spans go to the SDK's batch
processor, whose queue is bounded and whose thread exports them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter, time_ns
from typing import Final

from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dataplane.errors import RequestError
from dataplane.headers import TRACEPARENT, Headers
from epp.interfaces.scheduling import ProfileResult, SchedulingResult
from epp.interfaces.spans import (
    ProfileRun,
    RequestSpans,
    ResponseFacts,
    Scheduling,
    TimedCall,
    TracedRequest,
)
from epp.scheduling.profile import FILTER_POINT, PICKER_POINT, SCORER_POINT
from epp.scheduling.scheduler import PROCESS_RESULTS_POINT, PROFILE_PICKER_POINT

MAX_TOP: Final = 5
"""Endpoints that ``pick_endpoints`` names, best first."""
MAX_TEXT: Final = 256
"""Characters of an attribute that a client chose."""

Attributes = dict[str, str | int | float | bool | Sequence[str] | Sequence[float]]

ROOT: Final = "gateway.request"

_NO_PARENT: Final = Context()
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_DISAGGREGATING: Final = "disagg"


class _HeaderGetter(Getter[Headers]):
    """Reads trace context from a request's headers."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        found = [value.decode("latin-1") for name, value in carrier if name == key]
        return found or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_GETTER: Final = _HeaderGetter()


class TraceIds(RandomIdGenerator):
    """Random ids, and one that was drawn before: sampling goes by the id, and most need nothing else."""

    def __init__(self) -> None:
        self._drawn = 0

    def draw(self) -> int:
        """The id of the next trace that begins here, if one is begun."""
        self._drawn = random.getrandbits(128) or 1
        return self._drawn

    def generate_trace_id(self) -> int:
        """The drawn id, once."""
        drawn, self._drawn = self._drawn, 0
        return drawn or super().generate_trace_id()


class OtelTracer:
    """Begins a trace per request, or goes on with the caller's. ``ids`` are those of the tracer."""

    def __init__(self, tracer: Tracer, sampler: Sampler, ids: TraceIds) -> None:
        self._tracer = tracer
        self._sampler = sampler
        self._ids = ids

    def begin(self, headers: Headers) -> RequestSpans | None:
        """Recorded spans, or none but word of that for the model server; None when that is known there."""
        if headers.raw(TRACEPARENT) is None:
            return self._begin_here()
        parent = _PROPAGATOR.extract(headers, Context(), _GETTER)
        span = self._tracer.start_span(ROOT, parent, SpanKind.SERVER)
        if span.is_recording():
            return OtelSpans(self._tracer, span)
        caller = get_current_span(parent).get_span_context()
        if caller.is_valid and not caller.trace_flags.sampled:
            return None
        return UnrecordedSpans(_propagated(span))

    def _begin_here(self) -> RequestSpans:
        """A trace without a caller: most are not recorded, and cost two ids."""
        trace_id = self._ids.draw()
        decision = self._sampler.should_sample(_NO_PARENT, trace_id, ROOT).decision
        if decision is not Decision.RECORD_AND_SAMPLE:
            span_id = random.getrandbits(64) or 1
            return UnrecordedSpans({TRACEPARENT: f"00-{trace_id:032x}-{span_id:016x}-00"})
        return OtelSpans(self._tracer, self._tracer.start_span(ROOT, _NO_PARENT, SpanKind.SERVER))


class UnrecordedSpans:
    """A trace of which nothing is kept but that it is not to be recorded."""

    is_recording = False
    trace_id = ""

    def __init__(self, propagation: Mapping[str, str]) -> None:
        self.propagation = propagation

    def scheduled(self, scheduling: Scheduling) -> None:
        """Nothing."""

    def decided(self, request: TracedRequest, destination: str) -> None:
        """Nothing."""

    def refused(self, request: TracedRequest | None, error: RequestError) -> None:
        """Nothing."""

    def ended(self, facts: ResponseFacts) -> None:
        """Nothing."""


class OtelSpans:
    """A recorded trace."""

    is_recording = True
    __slots__ = (
        "_attributes", "_began_ns", "_counter", "_decided", "_destination", "_scheduling", "_span", "_tracer",
        "propagation", "trace_id",
    )  # fmt: skip

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        self._began_ns, self._counter = time_ns(), perf_counter()
        self.trace_id = f"{span.get_span_context().trace_id:032x}"
        self._attributes: Attributes = {}
        self._scheduling = Scheduling((), (), None)
        self._decided = 0.0
        self._destination = ""
        self.propagation: Mapping[str, str] = _propagated(span)

    def scheduled(self, scheduling: Scheduling) -> None:
        """Keep it for the end."""
        self._scheduling = scheduling

    def decided(self, request: TracedRequest, destination: str) -> None:
        """Note when and what."""
        self._decided = perf_counter()
        self._attributes = _request_attributes(request)
        self._destination = destination

    def refused(self, request: TracedRequest | None, error: RequestError) -> None:
        """Make the spans of a request that went nowhere."""
        self._decided = perf_counter()
        if request is not None:
            self._attributes = _request_attributes(request)
        failed: Attributes = {"error.type": error.code, "http.response.status_code": error.status}
        self._orchestration(f"{error.code}: {error.message}")
        self._end(self._attributes | failed, f"{error.code}: {error.message}")

    def ended(self, facts: ResponseFacts) -> None:
        """Make the spans of a request that was sent, or was given up before."""
        problem = "" if facts.cause == "natural" else facts.cause
        if facts.status >= 500:
            problem = problem or f"the model server answered {facts.status}"
        self._decided = self._decided or perf_counter()
        self._orchestration("" if self._destination else problem)
        prompt, cached, generated = facts.tokens
        known: dict[str, str | int | float | None] = {
            "http.response.status_code": facts.status or None,
            "http.response.body.size": facts.response_bytes,
            "gen_ai.usage.input_tokens": prompt,
            "gen_ai.usage.cache_read.input_tokens": cached,
            "gen_ai.usage.output_tokens": generated,
            "pointsman.destination": self._destination or None,
            "pointsman.served": facts.served or None,
            "pointsman.ttft_ms": None if facts.ttft_s is None else round(facts.ttft_s * 1000, 3),
            "error.type": problem or None,
        }
        found: Attributes = {name: value for name, value in known.items() if value is not None}
        self._end(self._attributes | found, problem)

    def _end(self, attributes: Attributes, problem: str) -> None:
        self._span.set_attributes(attributes)
        if problem:
            self._span.set_status(Status(StatusCode.ERROR, problem[:MAX_TEXT]))
        self._span.end()

    def _orchestration(self, problem: str) -> None:
        """From the complete request to the decision."""
        ids = self._attributes
        context = self._make(
            self._span, "gateway.request_orchestration", self._counter, self._decided, ids, problem
        )
        scheduling = self._scheduling
        for call in scheduling.handler_calls:
            if call.point == PROFILE_PICKER_POINT and call.plugin.type.startswith(_DISAGGREGATING):
                counted = ids | {"llm_d.epp.profile_handler.executed_profiles": len(scheduling.profiles)}
                self._make(context, "pick_disagg_profile", call.started, call.ended, counted)
            if call.point == PROCESS_RESULTS_POINT and call.plugin.type.startswith(_DISAGGREGATING):
                staged = ids | _stages(scheduling.result)
                self._make(context, "prepare_disaggregation", call.started, call.ended, staged)
        for run in scheduling.profiles:
            self._profile(context, run)

    def _profile(self, parent: Span, run: ProfileRun) -> None:
        ids = self._attributes
        named = ids | {"llm_d.epp.scheduling.profile.name": run.name}
        span = self._make(parent, "run_scheduler_profile", run.started, run.ended, named, run.error)
        filters, scorers, pickers = (
            [call for call in run.calls if call.point == point]
            for point in (FILTER_POINT, SCORER_POINT, PICKER_POINT)
        )
        left = len(run.result.candidates) if run.result is not None else 0
        counted: Attributes = {
            "llm_d.epp.filter.candidate_endpoints": run.candidates,
            "llm_d.epp.filter.filtered_endpoints": left,
        }
        filtered = filters[-1].ended if filters else run.started
        self._make(span, "filter_endpoints", run.started, filtered, ids | counted)
        if run.result is not None:
            self._scoring(span, scorers, run.result)
            for call in pickers:
                picked = ids | _picked(run.result)
                self._make(span, "pick_endpoints", call.started, call.ended, picked)

    def _scoring(self, parent: Span, calls: Sequence[TimedCall], result: ProfileResult) -> None:
        if not calls:
            return
        count = len(result.candidates)
        whole: Attributes = {
            "llm_d.epp.scorer.count": len(calls),
            "llm_d.epp.scoring.candidate_endpoints": count,
        }
        span = self._make(
            parent, "llm_d.epp.scoring", calls[0].started, calls[-1].ended, self._attributes | whole
        )
        for call, trace in zip(calls, result.scorers, strict=True):
            scores = [float(score) for score in trace.scores]
            scored: Attributes = {
                "llm_d.epp.scorer.type": call.plugin.type,
                "llm_d.epp.scorer.name": trace.name,
                "llm_d.epp.scorer.weight": float(trace.weight),
                "llm_d.epp.scorer.candidate_endpoints": count,
                "llm_d.epp.scorer.endpoints_scored": len(scores),
                "llm_d.epp.scorer.score.max": max(scores, default=0.0),
                "llm_d.epp.scorer.score.avg": sum(scores) / len(scores) if scores else 0.0,
            }
            self._make(
                span,
                f"llm_d.epp.scorer.{call.plugin.type}",
                call.started,
                call.ended,
                self._attributes | scored,
            )

    def _make(
        self, parent: Span, name: str, started: float, ended: float, attributes: Attributes, problem: str = ""
    ) -> Span:
        """A finished span, to be the parent of others."""
        span = self._tracer.start_span(
            name,
            set_span_in_context(parent, Context()),
            SpanKind.INTERNAL,
            attributes=attributes,
            start_time=self._at(started),
        )
        if problem:
            span.set_status(Status(StatusCode.ERROR, problem[:MAX_TEXT]))
        span.end(self._at(ended))
        return span

    def _at(self, counter: float) -> int:
        return self._began_ns + int((counter - self._counter) * 1e9)


def _propagated(span: Span) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, set_span_in_context(span, Context()))
    return carrier


def _request_attributes(request: TracedRequest) -> Attributes:
    return {
        "gen_ai.request.id": _clean(request.request_id),
        "gen_ai.request.model": _clean(request.target_model or request.model),
    }


def _clean(text: str) -> str:
    return text[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")


def _picked(result: ProfileResult) -> Attributes:
    """The best candidates and their totals."""
    totals = [float(total) for total in result.totals]
    best: Iterable[int] = sorted(range(len(totals)), key=lambda position: -totals[position])[:MAX_TOP]
    endpoints = result.candidates.endpoints
    return {
        "llm_d.epp.picker.candidate_endpoints": len(totals),
        "llm_d.epp.picker.top_endpoints": [endpoints[position].spec.id for position in best],
        "llm_d.epp.picker.top_scores": [round(totals[position], 6) for position in best],
    }


def _stages(result: SchedulingResult | None) -> Attributes:
    """Which stages run on endpoints of their own, and where the prompt is computed."""
    prefill = None if result is None else result.prefill_endpoint
    found: Attributes = {"llm_d.epp.pd.disaggregation_used": prefill is not None}
    if result is not None and result.decision:
        found["llm_d.epp.profile_handler.decision"] = result.decision
    if prefill is not None:
        found["llm_d.epp.pd.prefill_pod_address"] = prefill.spec.address
        found["llm_d.epp.pd.prefill_pod_port"] = str(prefill.spec.port)
    return found
