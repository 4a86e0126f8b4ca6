"""Endpoints are chosen by attributes that are read from their metrics or their labels."""

import json
from pathlib import Path

import pytest

from tests.support.black_box import Pod, Site

pytestmark = pytest.mark.integration

BODY = {"model": "m", "prompt": "p"}
EXTRACTOR = """
- type: core-metrics-extractor
  parameters:
    engineConfigs:
    - name: vllm
      queuedRequestsSpec: vllm:num_requests_waiting
      runningRequestsSpec: vllm:num_requests_running
      kvUsageSpec: vllm:kv_cache_usage_perc
      customMetrics: [{attributeKey: Busy, metricSpec: "vllm:num_requests_running{model_name=m}"}]
"""
SCORER = """
plugins:
- type: endpoint-attribute-scorer
  parameters:
    attributeKey: Busy
    algorithm: {type: linear_lower_is_better, normalization: {adaptiveRange: {}}}
"""
FILTER = """
plugins:
- type: endpoint-attribute-filter
  parameters:
    attribute: Busy
    producer: core-metrics-extractor
    algorithm: {type: threshold, threshold: {operator: GreaterThanOrEqual, value: 9}}
"""
FLAGS = ("--allow-experimental-plugins",)
PODS = (Pod(running=9), Pod(running=2), Pod(running=5))


async def test_a_custom_metric_decides(tmp_path: Path):
    async with Site(tmp_path, *PODS, config=SCORER + EXTRACTOR, flags=FLAGS) as site:
        assert await site.picked(BODY) == site.key(1)
        shown = json.loads(await site.page("/debug/endpoints"))["endpoints"]
        assert {row["name"]: row["attributes"] for row in shown} == {
            "p0": {"Busy/core-metrics-extractor": 9.0},
            "p1": {"Busy/core-metrics-extractor": 2.0},
            "p2": {"Busy/core-metrics-extractor": 5.0},
        }


async def test_a_custom_metric_leaves_endpoints_out(tmp_path: Path):
    async with Site(tmp_path, *PODS, config=FILTER + EXTRACTOR, flags=FLAGS) as site:
        assert {await site.picked(BODY) for _ in range(5)} == {site.key(0)}
