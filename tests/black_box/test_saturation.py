"""Requests of negative priority are refused while there is no room for them; all others are routed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.black_box import DROPPED, Pod, Site, refusal, request_body, request_headers

pytestmark = pytest.mark.integration

OBJECTIVE = "x-llm-d-inference-objective"
BODY = {"model": "m", "prompt": "p"}
OBJECTS = "\n---\n".join(
    f"apiVersion: pointsman.dev/v1\nkind: InferenceObjective\nmetadata: {{name: {name}}}\n"
    f"spec: {{poolRef: {{name: pool}}, priority: {priority}}}"
    for name, priority in (("batch", -1), ("usual", 0), ("gold", 2))
)
COUNTING = """
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
- {type: queue-scorer}
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
flowControl: {saturationDetector: {pluginRef: concurrency-detector}}
"""
SATURATION = "llm_d_epp_flow_control_pool_saturation"
STALE = "llm_d_epp_flow_control_stale_endpoints"


def flags(folder: Path) -> list[str]:
    """Flags that make the objectives known."""
    file = folder / "objects.yaml"
    file.write_text(OBJECTS)
    return ["--objects-file", str(file)]


async def test_a_saturated_pool_sheds_negative_priorities_alone(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(waiting=5), Pod(kv=0.9), flags=flags(tmp_path)) as site:
        assert (await site.sample(SATURATION, inference_pool="pool", stage="effective") or 0) >= 1
        answers = await site.ask(BODY, (OBJECTIVE, "batch"))
        status, error, headers = refusal(answers)
        assert (status, error["message"]) == (429, "system saturated, sheddable request dropped")
        assert error["type"] == "rate_limit_error"
        assert headers[DROPPED] == "rejected-saturated"
        assert headers["retry-after"] == "1"
        assert site.picker.table.inflight.sum() == 0
        for objective in ("usual", "gold", "unheard-of"):
            assert await site.picked(BODY, (OBJECTIVE, objective)) in {site.key(0), site.key(1)}


async def test_what_counts_are_the_candidates_that_a_hint_leaves(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(waiting=9), Pod(), flags=flags(tmp_path)) as site:
        batch = (OBJECTIVE, "batch")
        assert await site.picked(BODY, batch) == site.key(1)
        assert await site.picked(BODY, batch, subset=[site.key(1)]) == site.key(1)
        assert refusal(await site.ask(BODY, batch, subset=[site.key(0)]))[0] == 429
        assert await site.picked(BODY, subset=[site.key(0)]) == site.key(0)
        assert refusal(await site.ask(BODY, batch, subset=["192.0.2.1:1"]))[0] == 503


async def test_silent_servers_count_as_full(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(), flags=flags(tmp_path)) as site:
        batch = (OBJECTIVE, "batch")
        assert await site.picked(BODY, batch) == site.key(0)
        site.pods[0].hangs = True
        while await site.sample(STALE, detector="utilization-detector") != 1:
            pass
        assert await site.sample(SATURATION, stage="effective") == 1
        assert refusal(await site.ask(BODY, batch))[0] == 429
        assert await site.picked(BODY) == site.key(0)


async def test_requests_in_flight_saturate_a_pool_at_once(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(), config=COUNTING, flags=flags(tmp_path)) as site:
        batch = (OBJECTIVE, "batch")
        assert await site.picked(BODY, batch) == site.key(0)
        async with site.asked(request_headers(), request_body(BODY, end=True)):
            assert refusal(await site.ask(BODY, batch))[0] == 429
            assert await site.picked(BODY) == site.key(0)
