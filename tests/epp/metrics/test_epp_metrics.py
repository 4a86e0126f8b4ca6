"""What is counted, under which labels, and that clients cannot make it grow."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dataplane.extproc.transport_metrics import TransportCollector, TransportMetrics
from dataplane.observability.numbers import MAX_LABEL_VALUES, MAX_SERIES
from dataplane.payload.token_usage import Usage
from dataplane.plugin.base import TypedName
from epp.interfaces.endpoint import Endpoint, EndpointSpec, EndpointTable
from epp.interfaces.request import ResponseSummary
from epp.metrics import EppMetrics, catalog
from epp.metrics.legacy import LEGACY_NAMES

ROOT = Path(__file__).resolve().parents[3]
VECTOR = ROOT / "tests/vectors/metrics.txt"
PAGE = ROOT / "docs/reference/metrics.md"

M = {"model_name": "m", "target_model_name": "t", "fairness_id": "f", "priority": "0"}


@pytest.fixture
def table() -> EndpointTable:
    """An empty pool."""
    return EndpointTable()


@pytest.fixture
def metrics(table: EndpointTable) -> EppMetrics:
    """Metrics of the pool `p`, streams included."""
    return EppMetrics(table, "p", stream_metrics=True)


def add(table: EndpointTable, name: str, **measured: float) -> Endpoint:
    """An endpoint with these columns, fresh if there are any."""
    endpoint = table.add(EndpointSpec(name, "default", f"10.0.0.{len(table) + 1}", 8000))
    for column, value in measured.items():
        getattr(table, column)[endpoint.slot] = value
    if measured:
        table.end_scrape(endpoint.slot, 1.0)
    return endpoint


def samples(metrics: EppMetrics, name: str) -> dict[frozenset[tuple[str, str]], float]:
    """Labels -> value of the samples called `<name>` after a prefix of ours, without buckets."""
    lines = (line for block in metrics.numbers.expose() for line in block.splitlines(keepends=True))
    text = "".join(line for line in lines if re.match(rf"(?:llm_d|pointsman)_epp_{name}[{{ ]", line))
    every = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {frozenset(sample.labels.items()): sample.value for sample in every}


def value(metrics: EppMetrics, name: str, /, **labels: str) -> float:
    """One sample."""
    return samples(metrics, name)[frozenset(labels.items())]


def names(metrics: EppMetrics) -> Iterator[str]:
    """Every metric as a line: name, kind, labels."""
    for each in metrics.numbers.describe():
        yield f"{each.name} {each.kind} {','.join(each.labels)}".rstrip()


def families(metrics: EppMetrics) -> Iterator[str]:
    """Every metric as a line: name, kind, labels, buckets."""
    for each in metrics.numbers.describe():
        buckets = " ".join(f"{bound:g}" if bound < 1e6 else str(int(bound)) for bound in each.bounds)
        yield f"{each.name} {each.kind} {{{','.join(each.labels)}}} {buckets}".rstrip()


def test_names_kinds_labels_and_buckets_are_the_recorded_ones(metrics: EppMetrics):
    assert list(families(metrics)) == VECTOR.read_text().splitlines()


def test_former_names_are_exposed_only_when_asked_for(metrics: EppMetrics, table: EndpointTable):
    current = {each.name for each in metrics.numbers.describe()}
    with_former = {
        each.name for each in EppMetrics(table, "p", stream_metrics=True, legacy=True).numbers.describe()
    }
    assert with_former - current == {each.name for each in LEGACY_NAMES}
    assert len(with_former) == len(current) + len(LEGACY_NAMES)


def test_help_of_the_fields_metrics_says_their_stage(metrics: EppMetrics):
    text = "".join(metrics.numbers.expose())
    marked = set(re.findall(r"^# HELP (\S+) \[ALPHA\] ", text, re.MULTILINE))
    assert marked == {each.name for each in metrics.numbers.describe() if each.name.startswith("llm_d_epp_")}


def exposed(metrics: EppMetrics, name: str) -> list[str]:
    """Lines of one metric."""
    lines = "".join(metrics.numbers.expose()).splitlines()
    return [line for line in lines if re.match(rf"{name}[{{ ]", line)]


def test_a_former_name_adds_up_what_its_labels_do_not_tell_apart(table: EndpointTable):
    metrics = EppMetrics(table, "p", legacy=True)
    for fairness_id in ("f", "g"):
        request = metrics.for_request("m", "t", fairness_id, 0)
        request.started(100)
        request.finished(ResponseSummary(duration_s=0.5, ttft_s=0.25))
    assert exposed(metrics, "inference_objective_request_total") == [
        'inference_objective_request_total{model_name="m",target_model_name="t",priority="0"} 2'
    ]
    labels = 'model_name="m",target_model_name="t"'
    bucket = exposed(metrics, "inference_objective_request_sizes_bucket")
    assert bucket[:2] == [
        f'inference_objective_request_sizes_bucket{{{labels},le="64"}} 0',
        f'inference_objective_request_sizes_bucket{{{labels},le="128"}} 2',
    ]
    assert exposed(metrics, "inference_objective_request_duration_seconds_sum") == [
        f"inference_objective_request_duration_seconds_sum{{{labels}}} 1"
    ]
    assert exposed(metrics, "inference_objective_request_ttft_seconds_count") == [
        f"inference_objective_request_ttft_seconds_count{{{labels}}} 2"
    ]
    assert exposed(metrics, "inference_pool_ready_pods") == ['inference_pool_ready_pods{name="p"} 0']


def test_former_names_keep_the_labels_they_had(table: EndpointTable):
    metrics = EppMetrics(table, "p", legacy=True)
    metrics.scheduled(0.001, "t", add(table, "a", waiting=4))
    labels = 'status="success",target_model_name="t",namespace="default",port="8000",pod_name="a"'
    assert exposed(metrics, "inference_extension_scheduler_attempts_total") == [
        f"inference_extension_scheduler_attempts_total{{{labels}}} 1"
    ]
    assert exposed(metrics, "inference_pool_per_pod_queue_size") == [
        'inference_pool_per_pod_queue_size{name="p",model_server_pod="a"} 4'
    ]


def test_every_former_name_is_documented_with_what_replaces_it():
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    assert [(name, current, labels.replace("`", "")) for name, current, labels in rows] == [
        (each.name, f"llm_d_epp_{each.current}", ", ".join(each.labels) or "-") for each in LEGACY_NAMES
    ]


def test_no_family_is_there_that_the_reference_says_is_not(metrics: EppMetrics):
    absent = PAGE.read_text().partition("## Not there")[2]
    patterns = re.findall(r"`([\w*]+_[\w*]+)`", "".join(re.findall(r"^\| (`.*?) \|", absent, re.MULTILINE)))
    present = [each.name.removeprefix("llm_d_epp_") for each in metrics.numbers.describe()]
    assert len(patterns) > 5
    assert [name for name in present if any(fnmatch(name, pattern) for pattern in patterns)] == []


def test_an_answer_that_is_not_streamed_has_its_first_token_when_it_is_whole(metrics: EppMetrics):
    request = metrics.for_request("m", "t", "f", 0)
    request.started(1)
    request.finished(ResponseSummary(duration_s=2.5, ttft_s=0.25))
    assert value(metrics, "request_ttft_seconds_sum", **M, streaming="false") == 2.5
    request.started(1)
    request.finished(ResponseSummary(duration_s=2.5))
    assert value(metrics, "request_ttft_seconds_count", **M, streaming="false") == 1


def test_every_metric_is_documented_with_its_kind_and_labels(metrics: EppMetrics):
    here = (
        "| `llm_d_epp_",
        "| `pointsman_epp_disagg_",
        "| `pointsman_epp_plugin_",
        "| `pointsman_epp_prompt_",
    )
    current = PAGE.read_text().partition("## Former names")[0]
    rows = [line.split("|") for line in current.splitlines() if line.startswith(here)]
    documented = sorted(
        f"{row[1].strip(' `')} {row[2].strip()} {','.join(row[3].replace('`', '').split(', '))}".replace(
            " -", ""
        )
        for row in rows
    )
    assert [" ".join(line.split()) for line in documented] == list(names(metrics))


def test_every_metric_of_the_transport_is_documented():
    described = TransportCollector(TransportMetrics()).collect()
    exposed = {f"{family.name}{'_total' * (family.type == 'counter')} {family.type}" for family in described}
    lines = PAGE.read_text().splitlines()
    rows = [line.split("|") for line in lines if line.startswith("| `pointsman_extproc_")]
    assert {f"{row[1].strip(' `')} {row[2].strip()}" for row in rows} == exposed


def test_stream_metrics_exist_only_when_asked_for(table: EndpointTable):
    without = EppMetrics(table, "p")
    without.stream_opened()
    without.stream_closed("OK", 1.0)
    assert [line for line in names(without) if "extproc" in line] == []


def test_a_request_is_counted_from_start_to_end(metrics: EppMetrics):
    request = metrics.for_request("m", "t", "f", 0)
    request.started(2000)
    assert value(metrics, "request_running", **M) == 1
    request.first_byte(0.2)
    request.chunk_gap(0.05)
    usage = Usage(prompt_tokens=100, completion_tokens=11, total_tokens=111, cached_tokens=64)
    request.finished(
        ResponseSummary(
            status=200, streaming=True, usage=usage, ttft_s=0.2, duration_s=1.2, response_bytes=5000
        )
    )
    assert {
        name: value(metrics, name, **M)
        for name in (
            "request_total",
            "request_running",
            "request_size_bytes_sum",
            "response_size_bytes_sum",
            "request_duration_seconds_sum",
            "request_input_tokens_sum",
            "request_cached_tokens_sum",
            "request_output_tokens_sum",
            "request_streaming_itl_seconds_sum",
        )
    } == {
        "request_total": 1,
        "request_running": 0,
        "request_size_bytes_sum": 2000,
        "response_size_bytes_sum": 5000,
        "request_duration_seconds_sum": 1.2,
        "request_input_tokens_sum": 100,
        "request_cached_tokens_sum": 64,
        "request_output_tokens_sum": 11,
        "request_streaming_itl_seconds_sum": 0.05,
    }
    assert value(metrics, "request_ttft_seconds_sum", **M, streaming="true") == 0.2
    assert value(metrics, "request_ntpot_seconds_sum", **M) == pytest.approx(1.2 / 11)
    assert value(metrics, "request_streaming_tpot_seconds_sum", **M) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("summary", "counted"),
    [
        (ResponseSummary(), set()),
        (ResponseSummary(usage=Usage()), set()),
        (ResponseSummary(usage=Usage(completion_tokens=0), duration_s=1), {"output"}),
        (ResponseSummary(usage=Usage(completion_tokens=5), duration_s=1), {"output", "ntpot"}),
        (
            ResponseSummary(usage=Usage(completion_tokens=5), streaming=True, duration_s=1),
            {"output", "ntpot"},
        ),
        (
            ResponseSummary(usage=Usage(completion_tokens=1), streaming=True, ttft_s=0.5, duration_s=1),
            {"output", "ntpot"},
        ),
        (
            ResponseSummary(usage=Usage(completion_tokens=2), streaming=True, ttft_s=0.5, duration_s=1),
            {"output", "ntpot", "tpot"},
        ),
    ],
)
def test_only_what_is_known_is_observed(metrics: EppMetrics, summary: ResponseSummary, counted: set[str]):
    request = metrics.for_request("m", "t", "f", 0)
    request.started(0)
    request.finished(summary)
    full = {
        "input": "request_input_tokens",
        "cached": "request_cached_tokens",
        "output": "request_output_tokens",
        "ntpot": "request_ntpot_seconds",
        "tpot": "request_streaming_tpot_seconds",
    }
    assert {key for key, name in full.items() if value(metrics, f"{name}_count", **M)} == counted
    assert value(metrics, "request_duration_seconds_count", **M) == 1


def test_an_error_before_a_decision_is_counted_as_an_error_alone(metrics: EppMetrics):
    metrics.for_request("m", "t", "f", 0).error("BadRequest")
    metrics.for_request("m", "t", "f", 0).error("BadRequest")
    assert value(metrics, "request_error_total", **M, error_code="BadRequest") == 2
    assert samples(metrics, "request_total") == {}


def test_the_same_kind_of_request_has_the_same_numbers(metrics: EppMetrics):
    assert metrics.for_request("m", "t", "f", 0) is metrics.for_request("m", "t", "f", 0)
    assert metrics.for_request("m", "t", "f", 0) is not metrics.for_request("m", "t", "f", -1)


def test_models_and_fairness_ids_past_the_cap_are_other(metrics: EppMetrics):
    for i in range(MAX_LABEL_VALUES + 50):
        metrics.for_request(f"m{i}", "t", "f", 0).started(1)
    counted = samples(metrics, "request_total")
    assert len(counted) == MAX_LABEL_VALUES + 1
    assert value(metrics, "request_total", **{**M, "model_name": "other"}) == 50
    assert len(metrics._by_request) == MAX_LABEL_VALUES


def test_combinations_past_the_cap_are_counted_together(metrics: EppMetrics):
    for i in range(MAX_LABEL_VALUES):
        for fairness_id in ("a", "b", "c"):
            metrics.for_request(f"m{i}", "t", fairness_id, 0).started(1)
    counted = samples(metrics, "request_total")
    assert len(counted) == MAX_SERIES + 1
    everything = dict.fromkeys(M, "other")
    assert value(metrics, "request_total", **everything) == 3 * MAX_LABEL_VALUES - MAX_SERIES


def test_a_hostile_model_name_cannot_break_the_exposition(metrics: EppMetrics):
    metrics.for_request('m"\n\\\udcff' + "x" * 10, "y" * 10_000, "f", 0).started(1)
    (labels,) = samples(metrics, "request_total")
    assert dict(labels)["model_name"] == 'm"\n\\?xxxxxxxxxx'
    assert dict(labels)["target_model_name"] == "other"
    "".join(metrics.numbers.expose()).encode("utf-8")


def test_decisions_are_counted_by_endpoint_until_it_leaves(metrics: EppMetrics, table: EndpointTable):
    a, b = add(table, "a"), add(table, "b")
    for endpoint in (a, a, b):
        metrics.scheduled(0.0003, "t", endpoint)
    metrics.schedule_failed("t")
    place = {"namespace": "default", "port": "8000", "target_model_name": "t"}
    assert value(metrics, "scheduler_attempts_total", status="success", endpoint_name="a", **place) == 2
    assert value(metrics, "scheduler_attempts_total", status="success", endpoint_name="b", **place) == 1
    nowhere = {"endpoint_name": "", "namespace": "", "port": ""}
    assert value(metrics, "scheduler_attempts_total", status="failure", target_model_name="t", **nowhere) == 1
    assert value(metrics, "scheduler_e2e_duration_seconds_count") == 3
    metrics.on_endpoint_added(b)
    metrics.on_endpoint_removed(a)
    assert len(samples(metrics, "scheduler_attempts_total")) == 2
    assert a not in metrics._attempts


def test_decisions_for_unbounded_models_are_folded(metrics: EppMetrics, table: EndpointTable):
    endpoint = add(table, "a")
    for i in range(MAX_LABEL_VALUES + 5):
        metrics.scheduled(0.0, f"t{i}", endpoint)
    assert len(samples(metrics, "scheduler_attempts_total")) == MAX_LABEL_VALUES + 1
    assert len(metrics._attempts[endpoint]) == MAX_LABEL_VALUES


class Timed:
    """A plugin, as far as timings are concerned."""

    name = TypedName("queue-scorer", "queue")
    indexed_blocks = 42


def test_plugins_are_timed_by_extension_point(metrics: EppMetrics):
    metrics.plugin_timings.recorder("Scorer", Timed())(0.25)
    metrics.plugin_timings.recorder("Scorer", Timed())(0.5)
    labels = {"extension_point": "Scorer", "plugin_type": "queue-scorer", "plugin_name": "queue"}
    assert value(metrics, "plugin_duration_seconds_sum", **labels) == 0.75


def test_decisions_in_stages_are_counted_with_what_was_left_out(metrics: EppMetrics):
    handler = TypedName("disagg-profile-handler", "pd")
    plugin = {"plugin_name": "pd", "plugin_type": "disagg-profile-handler"}
    metrics.decided_in_stages(handler, "t", "prefill-decode", [])
    metrics.decided_in_stages(handler, "t", "decode-only", ["encode", "prefill"])
    metrics.decided_in_stages(handler, "t", "decode-only", ["prefill"])
    assert samples(metrics, "disagg_decision_total") == {
        frozenset((plugin | {"model_name": "t", "decision_type": "prefill-decode"}).items()): 1,
        frozenset((plugin | {"model_name": "t", "decision_type": "decode-only"}).items()): 2,
    }
    assert samples(metrics, "disagg_left_out_total") == {
        frozenset((plugin | {"stage": "encode"}).items()): 1,
        frozenset((plugin | {"stage": "prefill"}).items()): 2,
    }


def test_a_decision_in_stages_without_a_model_is_counted_as_unknown(metrics: EppMetrics):
    metrics.decided_in_stages(TypedName("t", "n"), "", "decode-only", [])
    (labels,) = samples(metrics, "disagg_decision_total")
    assert dict(labels)["model_name"] == "unknown"


def test_model_names_of_decisions_in_stages_are_capped(metrics: EppMetrics):
    for n in range(MAX_LABEL_VALUES + 5):
        metrics.decided_in_stages(TypedName("t", "n"), f"model-{n}", "decode-only", [])
    counted = samples(metrics, "disagg_decision_total")
    assert len(counted) == MAX_LABEL_VALUES + 1
    labels = {"plugin_name": "n", "plugin_type": "t", "model_name": "other", "decision_type": "decode-only"}
    assert counted[frozenset(labels.items())] == 5


def test_prefix_matches_are_counted_under_the_first_index(metrics: EppMetrics):
    metrics.prefix_matched(1, 2, 16)
    assert samples(metrics, "prefix_indexer_hit_ratio_count") == {}
    metrics.watch_prefix_indexes([Timed()])
    metrics.prefix_matched(3, 4, 16)
    metrics.prefix_matched(0, 0, 16)
    labels = {"plugin_name": "queue", "plugin_type": "queue-scorer"}
    assert value(metrics, "prefix_indexer_size", **labels) == 42
    assert value(metrics, "prefix_indexer_hit_ratio_sum", **labels) == 0.75
    assert value(metrics, "prefix_indexer_hit_bytes_sum", **labels) == 3 * 16 * 4
    assert value(metrics, "prefix_indexer_hit_bytes_count", **labels) == 1


def test_processing_streams_and_data_layer_are_counted(metrics: EppMetrics):
    metrics.processed_request(0.5)
    metrics.processed_response(0.25)
    metrics.stream_opened()
    metrics.stream_opened()
    metrics.stream_closed("Canceled", 2.0)
    metrics.poll_error("metrics-data-source")
    metrics.extract_error("metrics-data-source", "core-metrics-extractor")
    assert value(metrics, "request_processing_duration_seconds_sum") == 0.5
    assert value(metrics, "response_processing_duration_seconds_sum") == 0.25
    assert value(metrics, "extproc_streams_inflight") == 1
    assert value(metrics, "extproc_stream_duration_seconds_sum") == 2.0
    assert value(metrics, "extproc_streams_total", code="Canceled") == 1
    assert value(metrics, "datalayer_poll_errors_total", source_type="metrics-data-source") == 1
    assert (
        value(
            metrics,
            "datalayer_extract_errors_total",
            source_type="metrics-data-source",
            extractor_type="core-metrics-extractor",
        )
        == 1
    )


def test_pool_gauges_are_of_fresh_endpoints(metrics: EppMetrics, table: EndpointTable):
    add(table, "a", waiting=1, running=2, kv_usage=0.25)
    add(table, "b", waiting=4, running=2, kv_usage=0.5)
    add(table, "stale")
    assert {
        name: value(metrics, name, name="p")
        for name in (
            "average_queue_size",
            "std_dev_queue_size",
            "average_running_requests",
            "std_dev_running_requests",
            "average_kv_cache_utilization",
            "std_dev_kv_cache_utilization",
            "ready_endpoints",
        )
    } == {
        "average_queue_size": 2.5,
        "std_dev_queue_size": 2.12,
        "average_running_requests": 2,
        "std_dev_running_requests": 0,
        "average_kv_cache_utilization": 0.38,
        "std_dev_kv_cache_utilization": 0.18,
        "ready_endpoints": 3,
    }
    assert samples(metrics, "per_endpoint_queue_size") == {
        frozenset({"name": "p", "model_server_endpoint": "a"}.items()): 1,
        frozenset({"name": "p", "model_server_endpoint": "b"}.items()): 4,
    }


def test_an_empty_pool_has_no_load_and_a_stale_one_none_that_is_known(
    metrics: EppMetrics, table: EndpointTable
):
    assert value(metrics, "average_queue_size", name="p") == 0
    assert value(metrics, "std_dev_queue_size", name="p") == 0
    add(table, "stale")
    assert samples(metrics, "average_queue_size") == {}
    assert value(metrics, "ready_endpoints", name="p") == 1


def test_load_in_flight_is_shown_per_endpoint(metrics: EppMetrics, table: EndpointTable):
    endpoint = add(table, "a")
    table.book(endpoint)
    table.inflight_tokens[endpoint.slot] = 120
    labels = {
        "endpoint_name": "a",
        "namespace": "default",
        "producer_name": "inflight-load-producer",
        "fairness_id": "",
        "priority": "",
    }
    assert value(metrics, "inflight_requests", **labels) == 1
    assert value(metrics, "inflight_tokens", **labels) == 120


def test_info_names_the_build(metrics: EppMetrics):
    ((labels, one),) = samples(metrics, "info").items()
    assert one == 1
    assert dict(labels).keys() == {"commit", "build_ref"}
    assert dict(labels)["build_ref"]


def test_buckets_are_those_of_the_field():
    assert catalog.DURATION_BOUNDS[:3] == (0.005, 0.025, 0.05)
    assert catalog.DURATION_BOUNDS[-2:] == (2700, 3600)
    assert len(catalog.DURATION_BOUNDS) == 35
    assert catalog.TTFT_BOUNDS[-2:] == (60, 120)
    assert catalog.REQUEST_SIZE_BOUNDS[0] == 64
    assert catalog.REQUEST_SIZE_BOUNDS[-1] == 1 << 30
    assert catalog.RESPONSE_SIZE_BOUNDS[:3] == (1, 8, 16)
    assert catalog.RESPONSE_SIZE_BOUNDS[-1] == 65536
    assert catalog.INPUT_TOKEN_BOUNDS[-7:] == (16384, 32778, 65536, 131072, 262144, 524288, 1048576)
    assert catalog.OUTPUT_TOKEN_BOUNDS[-1] == 8192
    assert all(
        list(bounds) == sorted(set(bounds))
        for name, bounds in vars(catalog).items()
        if name.endswith("_BOUNDS")
    )
