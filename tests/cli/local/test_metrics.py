"""What is read from a picker's metrics."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cli.local.metrics import PoolStatus, pool_status, quantile, sample_value
from cli.local.screen import summary
from tests.cli.local.plans import two_pools

EXPOSITION = """
# TYPE llm_d_epp_ready_endpoints gauge
llm_d_epp_ready_endpoints{name="small"} 4
# TYPE llm_d_epp_request_total counter
llm_d_epp_request_total{model_name="a",target_model_name="a"} 7
llm_d_epp_request_total{model_name="b",target_model_name="b"} 3
# TYPE llm_d_epp_request_running gauge
llm_d_epp_request_running{model_name="a"} 2
# TYPE llm_d_epp_prefix_indexer_hit_ratio histogram
llm_d_epp_prefix_indexer_hit_ratio_bucket{le="+Inf"} 4
llm_d_epp_prefix_indexer_hit_ratio_sum 3
llm_d_epp_prefix_indexer_hit_ratio_count 4
# TYPE llm_d_epp_scheduler_e2e_duration_seconds histogram
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.0001"} 4
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.0002"} 8
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="+Inf"} 10
"""


def samples(text: str) -> list[Sample]:
    """Parse an exposition."""
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_status_sums_over_models(tmp_path: Path):
    status = pool_status(two_pools(tmp_path).pools[0], samples(EXPOSITION))
    assert status == PoolStatus("small", True, 4, 10, 2, 0, 0.75, pytest.approx(0.000125))
    assert summary(status) == (
        "small: 4 endpoints, 10 requests, 2 running, 0 errors, prefix hits 75%, decision p50 0.12 ms"
    )


def test_silent_picker_is_down(tmp_path: Path):
    status = pool_status(two_pools(tmp_path).pools[0], [])
    assert status == PoolStatus("small", False, 0, 0, 0, 0, None, None)
    assert summary(status) == "small: its picker does not answer"


def test_labels_select_samples():
    found = samples(EXPOSITION)
    assert sample_value(found, "llm_d_epp_request_total", model_name="b") == 3
    assert sample_value(found, "llm_d_epp_request_total", model_name="c") is None


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        pytest.param({}, None, id="no histogram"),
        pytest.param({"1": 0, "+Inf": 0}, None, id="empty"),
        pytest.param({"1": 2, "2": 4, "+Inf": 4}, 1.0, id="at a bound"),
        pytest.param({"1": 0, "3": 4, "+Inf": 4}, 2.0, id="inside a bucket"),
        pytest.param({"1": 1, "+Inf": 10}, 1.0, id="beyond the last bound"),
    ],
)
def test_median_is_interpolated(counts: dict[str, float], wanted: float | None):
    found = [Sample("h_bucket", {"le": bound}, count) for bound, count in counts.items()]
    assert quantile(found, "h", 0.5) == wanted
