"""What operators see of a picker: flags that add to it and take from it, through the metrics port."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.black_box import ANSWERED, Pod, Site, request_body, request_headers

pytestmark = pytest.mark.integration

REQUEST = (request_headers(), request_body({"model": "m", "prompt": "word " * 400}, end=True), *ANSWERED)


async def test_former_metric_names_come_with_their_flag(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(), flags=["--legacy-metrics"]) as site:
        await site.converse(*REQUEST)
        labels = {"model_name": "m", "target_model_name": "m", "priority": "0"}
        assert await site.sample("inference_objective_request_total", **labels) == 1
        assert await site.sample("llm_d_epp_request_total", **labels) == 1
        assert 'inference_pool_ready_pods{name="pool"} 1\n' in await site.page("/metrics")


async def test_former_metric_names_are_not_there_without_it(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod()) as site:
        await site.converse(*REQUEST)
        assert "inference_objective_" not in await site.page("/metrics")


async def test_the_state_of_plugins_is_what_requests_left(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod()) as site:
        await site.converse(*REQUEST)
        plugins = json.loads(await site.page("/debug/plugins/state"))["plugins"]
        index = plugins["approx-prefix-cache-producer"]
        assert index["type"] == "approx-prefix-cache-producer"
        (row,) = index["state"]["endpoints"]
        assert (row["endpoint"], row["blocks"] > 0) == ("default/p0", True)
        assert plugins["queue-scorer"]["message"] == "keeps no state that it shows"


async def test_stacks_are_shown_unless_they_are_switched_off(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod()) as site:
        assert "thread MainThread" in await site.page("/debug/stacks")
    async with Site(tmp_path, Pod(), flags=["--enable-pprof=false"]) as site:
        assert await site.page("/debug/stacks") == "404: Not Found"
        assert await site.page("/debug/profile") == "404: Not Found"
