"""Spans of a request: their names, their parents, what they say, and what travels to the model server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    Sampler,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanKind, StatusCode

from dataplane.errors import BadRequestError, ResourceExhaustedError
from dataplane.extproc.exchange import Ending
from epp.director import Director
from epp.handler import PickerHandler
from epp.tracing.otel import OtelTracer, TraceIds
from tests.support.labelled import labelled_table
from tests.support.request_path import Rig, destination, http_request, response, set_headers

SCORING = """
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: label-selector-filter
  parameters: {matchLabels: {zone: a}}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: label-selector-filter}
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer}
"""
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"


class TracedRig(Rig):
    """A request path whose spans are kept."""

    def __init__(
        self,
        plugins: str = SCORING,
        sampler: Sampler = ALWAYS_ON,
        labels: Sequence[Mapping[str, str]] = ({"zone": "a"}, {"zone": "a"}, {"zone": "b"}),
    ) -> None:
        super().__init__(plugins, labelled_table(labels))
        self.exporter = InMemorySpanExporter()
        ids = TraceIds()
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False, id_generator=ids)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.director = Director(self.table, self.graph, self.metrics, self.clock, with_spans=True)
        self.handler = PickerHandler(
            self.director,
            self.metrics,
            self.decisions,
            self.clock,
            tracer=OtelTracer(provider.get_tracer("test"), sampler, ids),
        )

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """Finished spans by name; each name occurs once."""
        finished = self.exporter.get_finished_spans()
        named = {span.name: span for span in finished}
        assert len(named) == len(finished)
        return named


@pytest.fixture
def rig() -> TracedRig:
    """Everything is recorded."""
    return TracedRig()


def parents(spans: Mapping[str, ReadableSpan]) -> dict[str, str]:
    """Name of each span's parent; empty for one that is not among them."""
    names = {span.context.span_id: name for name, span in spans.items()}
    return {name: names.get(span.parent.span_id, "") if span.parent else "" for name, span in spans.items()}


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_request_makes_the_standard_spans(rig: TracedRig):
    exchange, answer = rig.ask(("x-request-id", "r1"))
    assert rig.spans == {}
    exchange.on_response_headers(response(served="10.0.0.1:8000"))
    exchange.on_response_chunk(
        b'{"usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}', True
    )
    exchange.on_end(Ending.NATURAL)
    assert parents(rig.spans) == {
        "gateway.request": "",
        "gateway.request_orchestration": "gateway.request",
        "run_scheduler_profile": "gateway.request_orchestration",
        "filter_endpoints": "run_scheduler_profile",
        "llm_d.epp.scoring": "run_scheduler_profile",
        "llm_d.epp.scorer.queue-scorer": "llm_d.epp.scoring",
        "llm_d.epp.scorer.kv-cache-utilization-scorer": "llm_d.epp.scoring",
        "pick_endpoints": "run_scheduler_profile",
    }
    assert rig.spans["gateway.request"].kind is SpanKind.SERVER
    assert {name for name, span in rig.spans.items() if span.status.status_code is StatusCode.ERROR} == set()
    whole = attributes(rig.spans["gateway.request"])
    assert whole | {"pointsman.ttft_ms": 0} == {
        "gen_ai.request.id": "r1",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "http.response.body.size": 75,
        "http.response.status_code": 200,
        "pointsman.destination": destination(answer),
        "pointsman.served": "10.0.0.1:8000",
        "pointsman.ttft_ms": 0,
    }


def test_scheduling_spans_say_what_was_filtered_scored_and_picked(rig: TracedRig):
    exchange, _ = rig.ask(("x-request-id", "r1"))
    exchange.on_end(Ending.NATURAL)
    ids = {"gen_ai.request.id": "r1", "gen_ai.request.model": "m"}
    assert attributes(rig.spans["run_scheduler_profile"]) == ids | {
        "llm_d.epp.scheduling.profile.name": "default"
    }
    assert attributes(rig.spans["filter_endpoints"]) == ids | {
        "llm_d.epp.filter.candidate_endpoints": 3,
        "llm_d.epp.filter.filtered_endpoints": 2,
    }
    assert attributes(rig.spans["llm_d.epp.scoring"]) == ids | {
        "llm_d.epp.scorer.count": 2,
        "llm_d.epp.scoring.candidate_endpoints": 2,
    }
    assert attributes(rig.spans["llm_d.epp.scorer.queue-scorer"]) == ids | {
        "llm_d.epp.scorer.type": "queue-scorer",
        "llm_d.epp.scorer.name": "queue-scorer",
        "llm_d.epp.scorer.weight": 2.0,
        "llm_d.epp.scorer.candidate_endpoints": 2,
        "llm_d.epp.scorer.endpoints_scored": 2,
        "llm_d.epp.scorer.score.max": 1.0,
        "llm_d.epp.scorer.score.avg": 1.0,
    }
    assert attributes(rig.spans["pick_endpoints"]) == ids | {
        "llm_d.epp.picker.candidate_endpoints": 2,
        "llm_d.epp.picker.top_endpoints": ("default/e0", "default/e1"),
        "llm_d.epp.picker.top_scores": (3.0, 3.0),
    }


def test_spans_lie_within_their_parents(rig: TracedRig):
    exchange, _ = rig.ask()
    exchange.on_end(Ending.NATURAL)
    spans = rig.spans
    for name, parent in parents(spans).items():
        inner = spans[name]
        assert inner.start_time <= inner.end_time
        if parent:
            outer = spans[parent]
            assert outer.start_time <= inner.start_time
            assert inner.end_time <= outer.end_time


def test_a_request_goes_on_with_its_callers_trace_and_the_model_server_with_ours(rig: TracedRig):
    exchange, answer = rig.ask(("x-request-id", "r"), ("traceparent", f"{CALLER}1"), ("tracestate", "a=b"))
    assert answer is not None
    exchange.on_end(Ending.NATURAL)
    whole = rig.spans["gateway.request"]
    assert (whole.parent.trace_id, whole.parent.span_id, whole.parent.is_remote) == (
        0x0AF7651916CD43DD8448EB211C80319C,
        0xB7AD6B7169203331,
        True,
    )
    sent = set_headers(answer)
    assert sent["traceparent"] == f"00-{whole.context.trace_id:032x}-{whole.context.span_id:016x}-01".encode()
    assert sent["tracestate"] == b"a=b"
    assert {span.context.trace_id for span in rig.spans.values()} == {whole.parent.trace_id}


def test_the_record_of_a_decision_names_its_trace(rig: TracedRig):
    exchange, _ = rig.ask(("x-request-id", "r"), ("traceparent", f"{CALLER}1"))
    exchange.on_end(Ending.NATURAL)
    (record,) = rig.decisions.find("r")
    assert record["traceId"] == "0af7651916cd43dd8448eb211c80319c"
    unrecorded = TracedRig(sampler=ALWAYS_OFF)
    unrecorded.ask(("x-request-id", "r"))
    (record,) = unrecorded.decisions.find("r")
    assert record["traceId"] == ""


def test_a_plugin_that_fails_at_the_end_costs_no_span(rig: TracedRig, monkeypatch: pytest.MonkeyPatch):
    exchange, _ = rig.ask()

    def fail(*_: object) -> None:
        raise LookupError("a plugin's defect")

    monkeypatch.setattr(rig.director, "tell_end", fail)
    with pytest.raises(LookupError):
        exchange.on_end(Ending.NATURAL)
    assert "gateway.request" in rig.spans


def test_a_caller_that_does_not_record_costs_nothing_and_its_header_passes_as_it_is():
    rig = TracedRig(sampler=ParentBased(ALWAYS_ON))
    exchange, answer = rig.ask(("x-request-id", "r"), ("traceparent", f"{CALLER}0"))
    assert answer is not None
    assert "traceparent" not in set_headers(answer)
    exchange.on_end(Ending.NATURAL)
    assert rig.spans == {}


def test_the_model_server_hears_that_a_request_is_not_recorded():
    rig = TracedRig(sampler=ParentBased(ALWAYS_OFF))
    exchange, answer = rig.ask(("x-request-id", "r"))
    assert answer is not None
    assert re.fullmatch(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-00", set_headers(answer)["traceparent"])
    exchange.on_end(Ending.NATURAL)
    assert rig.spans == {}


def test_the_ratio_is_kept_and_goes_by_the_id_that_travels():
    rig = TracedRig(sampler=ParentBased(TraceIdRatioBased(0.25)))
    said: dict[int, bool] = {}
    for _ in range(200):
        exchange, answer = rig.ask(("x-request-id", "r"))
        assert answer is not None
        _, trace_id, _, flags = set_headers(answer)["traceparent"].split(b"-")
        said[int(trace_id, 16)] = bool(int(flags, 16) & 1)
        exchange.on_end(Ending.NATURAL)
    finished = rig.exporter.get_finished_spans()
    recorded = {span.context.trace_id for span in finished if span.name == "gateway.request"}
    assert recorded == {trace_id for trace_id, sampled in said.items() if sampled}
    assert len(said) == 200
    assert all(sampled is (trace_id & (2**64 - 1) < 2**62) for trace_id, sampled in said.items())


def test_a_sampler_that_overrules_the_caller_is_told_on():
    rig = TracedRig(sampler=ALWAYS_OFF)
    exchange, answer = rig.ask(("x-request-id", "r"), ("traceparent", f"{CALLER}1"))
    assert answer is not None
    sent = set_headers(answer)["traceparent"].split(b"-")
    assert (sent[1], int(sent[3], 16) & 1) == (b"0af7651916cd43dd8448eb211c80319c", 0)
    exchange.on_end(Ending.NATURAL)
    assert rig.spans == {}


def test_a_broken_header_begins_a_trace_of_our_own(rig: TracedRig):
    exchange, _ = rig.ask(("traceparent", "00-nonsense\udcff"))
    exchange.on_end(Ending.NATURAL)
    assert rig.spans["gateway.request"].parent is None


def test_a_refused_request_says_why():
    rig = TracedRig(SCORING.replace("zone: a", "zone: nowhere"))
    with pytest.raises(ResourceExhaustedError):
        rig.ask(("x-request-id", "r"))
    filter_ = "filter 'label-selector-filter' of profile 'default'"
    problem = f"no endpoint can take the request: {filter_} left none of 3"
    assert set(rig.spans) == {
        "gateway.request", "gateway.request_orchestration", "run_scheduler_profile", "filter_endpoints",
    }  # fmt: skip
    assert rig.spans["run_scheduler_profile"].status.description == problem
    (record,) = rig.decisions.find("r")
    assert record["traceId"] == f"{rig.spans['gateway.request'].context.trace_id:032x}"
    assert rig.spans["gateway.request"].status.description == f"ResourceExhausted: {problem}"
    assert attributes(rig.spans["filter_endpoints"])["llm_d.epp.filter.filtered_endpoints"] == 0
    whole = attributes(rig.spans["gateway.request"])
    assert (whole["error.type"], whole["http.response.status_code"]) == ("ResourceExhausted", 429)


def test_a_request_that_cannot_be_read_has_a_trace_too(rig: TracedRig):
    request = http_request()
    request.body = b"{"
    exchange = rig.handler.open()
    with pytest.raises(BadRequestError):
        exchange.on_request(request, lambda _: None)
    exchange.on_end(Ending.REJECTED)
    assert set(rig.spans) == {"gateway.request", "gateway.request_orchestration"}
    assert rig.spans["gateway.request"].status.status_code is StatusCode.ERROR


@pytest.mark.parametrize(
    ("status", "ending", "problem"),
    [
        (200, Ending.DISCONNECT, "client-disconnect"),
        (503, Ending.NATURAL, "the model server answered 503"),
        (404, Ending.NATURAL, None),
    ],
)
def test_how_a_response_ended_is_the_requests_status(
    rig: TracedRig, status: int, ending: Ending, problem: str | None
):
    exchange, _ = rig.ask()
    exchange.on_response_headers(response(status=status))
    exchange.on_end(ending)
    assert rig.spans["gateway.request"].status.description == problem
    assert rig.spans["gateway.request_orchestration"].status.status_code is StatusCode.UNSET


def test_plugins_of_traced_decisions_count_in_the_same_metrics(rig: TracedRig):
    exchange, _ = rig.ask()
    exchange.on_end(Ending.NATURAL)
    text = "".join(rig.metrics.numbers.expose())
    labels = 'extension_point="Scorer",plugin_type="queue-scorer",plugin_name="queue-scorer"'
    assert f"llm_d_epp_plugin_duration_seconds_count{{{labels}}} 1\n" in text


def test_what_a_client_chose_is_cut_and_cleaned(rig: TracedRig):
    exchange, _ = rig.ask(("x-request-id", "x" * 250 + "\udcff" * 20))
    exchange.on_end(Ending.NATURAL)
    assert attributes(rig.spans["gateway.request"])["gen_ai.request.id"] == "x" * 250 + "?" * 6


DISAGGREGATED = """
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
- {type: always-disagg-pd-decider}
- {type: prefill-filter}
- {type: decode-filter}
- {type: queue-scorer}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}]
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}]
"""


def test_a_decision_in_stages_has_a_span_for_each_profile():
    roles = [{"llm-d.ai/role": "decode"}, {"llm-d.ai/role": "prefill"}]
    rig = TracedRig(DISAGGREGATED, labels=roles)
    exchange, _ = rig.ask()
    exchange.on_end(Ending.NATURAL)
    finished = rig.exporter.get_finished_spans()
    profiles = [span for span in finished if span.name == "run_scheduler_profile"]
    names = [attributes(span)["llm_d.epp.scheduling.profile.name"] for span in profiles]
    assert names == ["decode", "prefill"]
    handler = [attributes(span) for span in finished if span.name == "pick_disagg_profile"]
    assert {each["llm_d.epp.profile_handler.executed_profiles"] for each in handler} == {2}
    (prepared,) = (attributes(span) for span in finished if span.name == "prepare_disaggregation")
    assert {name: value for name, value in prepared.items() if name.startswith("llm_d.")} == {
        "llm_d.epp.pd.disaggregation_used": True,
        "llm_d.epp.pd.prefill_pod_address": "10.0.0.2",
        "llm_d.epp.pd.prefill_pod_port": "8000",
        "llm_d.epp.profile_handler.decision": "prefill-decode",
    }
    picked = [attributes(span) for span in finished if span.name == "pick_endpoints"]
    tops = [each["llm_d.epp.picker.top_endpoints"] for each in picked]
    assert tops == [("default/e0",), ("default/e1",)]
