"""``router-metrics-collector``: what pools tell of their load, and that failures are counted by reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dataplane.config.problems import ConfigErrors
from dataplane.plugin.heir import bequeath
from tests.support.processors import Rig, pipeline_of
from tests.support.served_models import running, selecting, write_models
from tests.support.waiting import PATIENCE_S

TYPE = "router-metrics-collector"
PAGE = """# TYPE usage gauge
usage{pool="a"} 0.25
waiting 3
running_now 7
"""


@pytest.fixture
async def base() -> AsyncIterator[str]:
    """A server of pages, good and bad."""

    async def page(request: web.Request) -> web.Response:
        if request.path == "/slow":
            await asyncio.sleep(30)
        return web.Response(
            status=500 if request.path == "/broken" else 200,
            text="nothing here\n" if request.path == "/other" else PAGE,
        )

    app = web.Application()
    app.router.add_get("/{tail:.*}", page)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()


def config_of(path: Path, models: dict[str, str], **parameters: Any) -> dict[str, Any]:
    file = write_models(path / "m.json", [{"name": k, "metricsURL": v} for k, v in models.items()], [])
    metrics = {
        "utilizationMetric": 'usage{pool="a"}',
        "queueDepthMetric": "waiting",
        "runningRequestsMetric": "running_now",
        "interval": "1h",
    }
    return selecting(file, collectors=[{"type": TYPE, "parameters": metrics | parameters}])


def loads(rig: Rig) -> dict[str, Any]:
    state = rig.pipeline.instances[TYPE].dump_state()
    return {**{each.pop("model"): each for each in state["models"]}, "failing": state["failing"]}


async def test_a_pool_tells_its_load(tmp_path: Path, base: str) -> None:
    async with running(config_of(tmp_path, {"a": f"{base}/metrics", "b": ""})) as rig:
        await rig.pipeline.instances[TYPE].collect()
        assert loads(rig) == {
            "a": {"utilization": 0.25, "cpu_usage": None, "queue_depth": 3.0, "running_requests": 7.0},
            "failing": {},
        }
        assert rig.counted("ipp_kv_cache_utilization_ratio", model="a") == 0.25
        assert rig.counted("ipp_kv_cache_queue_depth", model="a") == 3
        assert rig.counted("ipp_kv_cache_running_requests", model="a") == 7


async def test_failures_are_counted_by_reason_and_nothing_old_is_kept(tmp_path: Path, base: str) -> None:
    models = {
        "dial": "http://127.0.0.1:1/metrics",
        "http_status": f"{base}/broken",
        "parse": f"{base}/other",
        "timeout": f"{base}/slow",
    }
    async with running(config_of(tmp_path, models, timeout="300ms")) as rig:
        collector = rig.pipeline.instances[TYPE]
        await collector.collect()
        for reason in models:
            counted = rig.counted("ipp_kv_cache_scrape_failures_total", model=reason, reason=reason)
            assert counted >= 1, reason
        assert loads(rig) == {"failing": {name: name for name in models}}


async def test_a_new_configuration_goes_on_with_what_is_known(tmp_path: Path, base: str) -> None:
    config = config_of(tmp_path, {"a": f"{base}/metrics"})
    old = Rig(config)
    await old.pipeline.start()
    await old.pipeline.instances[TYPE].collect()
    new = Rig(config)
    bequeath(old.pipeline.instances, new.pipeline.instances)
    await old.pipeline.close()
    assert loads(new)["a"]["queue_depth"] == 3
    assert old.counted("ipp_kv_cache_queue_depth", model="a") == 3


async def test_the_first_round_knows_the_models_whatever_the_order(tmp_path: Path, base: str) -> None:
    config = config_of(tmp_path, {"a": f"{base}/metrics"})
    config["plugins"].reverse()
    async with running(config) as rig, asyncio.timeout(PATIENCE_S):
        while "a" not in loads(rig):  # noqa: ASYNC110 - the first round has no event
            await asyncio.sleep(0.01)
        assert loads(rig)["a"]["queue_depth"] == 3


async def test_a_model_that_vanishes_has_no_load(tmp_path: Path, base: str) -> None:
    async with running(config_of(tmp_path, {"a": f"{base}/metrics"})) as rig:
        collector, source = (rig.pipeline.instances[name] for name in (TYPE, "model-config-datasource"))
        await collector.collect()
        write_models(tmp_path / "m.json", [{"name": "b"}], [])
        await source.read_source()
        await collector.collect()
        assert loads(rig) == {"failing": {}}
        assert 'queue_depth{model="a"}' not in "".join(rig.metrics.numbers.expose())


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"interval": "0s"}, "interval: must be from 10ms to 24h"),
        ({"queueDepthMetric": "a b"}, "queueDepthMetric: 'a b' is not a metric"),
        ({"maxConcurrent": 0}, "maxConcurrent: expected"),
    ],
)
def test_parameters_are_judged(tmp_path: Path, parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        pipeline_of(config_of(tmp_path, {}, **parameters))
    found = [str(error) for error in caught.value.errors]
    assert any(each.startswith(f"plugins[2].parameters.{problem}") for each in found), found
