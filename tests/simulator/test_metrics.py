"""Metrics: vLLM's names, true values, text that a Prometheus parser reads."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from simulator.exposition import Counter, Histogram, label_text
from simulator.latency import StepLatency
from simulator.metrics import Metrics, size_bounds
from tests.simulator.driving import drive, limits, new_engine, samples, sequence

COUNTERS = {
    "generation_tokens",
    "num_preemptions",
    "prefix_cache_hits",
    "prefix_cache_queries",
    "prompt_tokens",
    "request_success",
}
GAUGES = {"cache_config_info", "kv_cache_usage_perc", "num_requests_running", "num_requests_waiting"}
HISTOGRAMS = {
    "e2e_request_latency_seconds",
    "inter_token_latency_seconds",
    "max_num_generation_tokens",
    "request_decode_time_seconds",
    "request_generation_tokens",
    "request_inference_time_seconds",
    "request_max_num_generation_tokens",
    "request_params_max_tokens",
    "request_prefill_time_seconds",
    "request_prompt_tokens",
    "request_queue_time_seconds",
    "request_time_per_output_token_seconds",
    "time_per_output_token_seconds",
    "time_to_first_token_seconds",
}


def families(text: bytes) -> dict[str, str]:
    return {family.name: family.type for family in text_string_to_metric_families(text.decode())}


def test_names_and_types_are_vllms():
    metrics = Metrics("m", limits(), with_adapters=True)
    found = families(metrics.render(new_engine(metrics=metrics)))
    expected = {f"vllm:{name}": "counter" for name in COUNTERS}
    expected |= {f"vllm:{name}": "gauge" for name in GAUGES | {"lora_requests_info"}}
    expected |= {f"vllm:{name}": "histogram" for name in HISTOGRAMS}
    assert found == expected


def test_adapters_are_shown_only_where_there_are_some():
    metrics = Metrics("m", limits(), with_adapters=False)
    assert "vllm:lora_requests_info" not in families(metrics.render(new_engine(metrics=metrics)))


def test_every_sample_names_model_and_engine():
    metrics = Metrics('odd "model"\\', limits(), with_adapters=False)
    for family in text_string_to_metric_families(metrics.render(new_engine(metrics=metrics)).decode()):
        for sample in family.samples:
            assert sample.labels["engine"] == "0"
            if family.name != "vllm:cache_config_info":
                assert sample.labels["model_name"] == 'odd "model"\\'


def test_gauges_follow_the_engine():
    metrics = Metrics("m", limits(max_num_seqs=1, num_blocks=10), with_adapters=False)
    engine = new_engine(metrics=metrics, max_num_seqs=1, num_blocks=10)
    engine.submit([sequence(range(40), 2), sequence(range(40), 2)], 0.0)
    engine.advance(0.0)
    shown = samples(metrics.render(engine))
    assert shown["vllm:num_requests_running"] == 1
    assert shown["vllm:num_requests_waiting"] == 1
    assert shown["vllm:kv_cache_usage_perc"] == 0.3
    drive(engine)
    shown = samples(metrics.render(engine))
    assert shown["vllm:num_requests_running"] == shown["vllm:num_requests_waiting"] == 0
    assert shown["vllm:kv_cache_usage_perc"] == 0
    info = (
        "vllm:cache_config_info{block_size=16,cache_dtype=auto,enable_prefix_caching=True,num_gpu_blocks=10}"
    )
    assert shown[info] == 1


def test_counters_and_times_are_exact():
    metrics = Metrics("m", limits(), with_adapters=False)
    engine = new_engine(StepLatency(0.5, 0.01, 0.0, 0.0), metrics)
    for _ in range(2):
        one = sequence(range(100), 3)
        one.max_tokens = 7
        engine.submit([one], 0.0)
        drive(engine)
    shown = samples(metrics.render(engine))
    assert shown["vllm:prefix_cache_queries_total"] == 200
    assert shown["vllm:prefix_cache_hits_total"] == 96
    assert shown["vllm:prompt_tokens_total"] == 200
    assert shown["vllm:generation_tokens_total"] == 6
    assert shown["vllm:request_success_total{finished_reason=length}"] == 2
    assert shown["vllm:request_success_total{finished_reason=stop}"] == 0
    # First prompt: 0.5 + 100 tokens, second: 0.5 + the 4 tokens that were not cached.
    assert shown["vllm:time_to_first_token_seconds_sum"] == pytest.approx(1.5 + 0.54)
    assert shown["vllm:time_to_first_token_seconds_bucket{le=0.75}"] == 1
    assert shown["vllm:time_to_first_token_seconds_bucket{le=2.5}"] == 2
    # Each of the four decode steps takes 0.5 s.
    assert shown["vllm:inter_token_latency_seconds_count"] == 4
    assert shown["vllm:inter_token_latency_seconds_sum"] == pytest.approx(2.0)
    assert shown["vllm:request_time_per_output_token_seconds_sum"] == pytest.approx(1.0)
    assert shown["vllm:request_decode_time_seconds_sum"] == pytest.approx(2.0)
    assert shown["vllm:e2e_request_latency_seconds_sum"] == pytest.approx(1.5 + 0.54 + 2.0)
    assert shown["vllm:request_queue_time_seconds_sum"] == 0
    assert shown["vllm:request_prompt_tokens_bucket{le=100.0}"] == 2
    assert shown["vllm:request_prompt_tokens_bucket{le=50.0}"] == 0
    assert shown["vllm:request_params_max_tokens_sum"] == 14


def test_adapters_are_listed_where_they_are():
    metrics = Metrics("m", limits(), with_adapters=True)
    engine = new_engine(metrics=metrics)
    engine.submit([sequence([1], 2, adapter=name) for name in ("b", "b", "a")], 0.0)
    engine.advance(0.0)
    assert "vllm:lora_requests_info{max_lora=1,running_lora_adapters=b,waiting_lora_adapters=a}" in samples(
        metrics.render(engine)
    )


def test_histogram_counts_a_value_on_a_bound_below_it():
    histogram = Histogram("h", "Help.", [1.0, 2.5], {"a": "100%"})
    histogram.observe(1.0)
    histogram.observe(2.0, 3)
    histogram.observe(9.0)
    assert histogram.render().decode() == (
        "# HELP h Help.\n# TYPE h histogram\n"
        'h_bucket{a="100%",le="1.0"} 1\nh_bucket{a="100%",le="2.5"} 4\nh_bucket{a="100%",le="+Inf"} 5\n'
        'h_sum{a="100%"} 16.0\nh_count{a="100%"} 5\n'
    )


def test_text_is_rendered_again_only_after_a_change():
    histogram, counter = Histogram("h", "Help.", [1.0], {}), Counter("c", {"a": "b"})
    assert histogram.render() is histogram.render()
    assert counter.render() is counter.render()
    counter.value += 1
    assert counter.render() == b'c{a="b"} 1\n'


def test_label_values_are_escaped():
    assert label_text({"b": 'x"y', "a": "1\\2\n"}) == '{a="1\\\\2\\n",b="x\\"y"}'


def test_size_bounds_go_1_2_5():
    assert size_bounds(100) == [1, 2, 5, 10, 20, 50, 100]
    assert size_bounds(4) == [1, 2]
