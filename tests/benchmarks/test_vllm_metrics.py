"""The metrics page of the upstream."""

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.vllm_metrics import MetricsPage


def test_page_is_valid_exposition_with_the_gauges_a_picker_reads():
    page = MetricsPage("bench").render(3, 2, 0.25).decode()
    samples = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["vllm:num_requests_running", None] == 3
    assert samples["vllm:num_requests_waiting", None] == 2
    assert samples["vllm:kv_cache_usage_perc", None] == 0.25
    assert samples["vllm:cache_config_info", None] == 1
    assert samples["vllm:time_to_first_token_seconds_bucket", "+Inf"] == 1024 * 23
    assert samples["vllm:time_to_first_token_seconds_count", None] == 1024 * 23


def test_page_has_the_size_of_a_real_one():
    assert 15_000 < len(MetricsPage("meta-llama/Llama-3.1-8B-Instruct").render(0, 0, 0.0)) < 60_000
