"""What is read from a picker's metrics."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cli.local.metrics import SCRAPE_CAP_BYTES, PoolStatus, pool_status, quantile, sample_value, scrape
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


async def serve(handler) -> tuple[web.AppRunner, int]:
    """A server for `/metrics` on a free port."""
    app = web.Application()
    app.router.add_get("/metrics", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, site._server.sockets[0].getsockname()[1]


async def scraped(handler, tmp_path: Path) -> list[Sample]:
    """What is read from a picker that answers with `handler`."""
    runner, port = await serve(handler)
    try:
        async with aiohttp.ClientSession() as session:
            return await scrape(session, replace(two_pools(tmp_path).pools[0], metrics_port=port))
    finally:
        await runner.cleanup()


async def test_page_that_comes_in_pieces_is_read_whole(tmp_path: Path):
    async def pieces(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in EXPOSITION.strip().splitlines(keepends=True):
            await response.write(line.encode())
            await asyncio.sleep(0.002)
        await response.write(b"\n")
        return response

    assert await scraped(pieces, tmp_path) == samples(EXPOSITION)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(500, "llm_d_epp_ready_endpoints 4\n", id="error"),
        pytest.param(200, "llm_d_epp_ready_endpoints four\n", id="garbage"),
        pytest.param(200, "# " + "x" * SCRAPE_CAP_BYTES, id="endless"),
    ],
)
async def test_unusable_page_counts_as_no_answer(status: int, body: str, tmp_path: Path):
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    assert await scraped(answer, tmp_path) == []


async def test_refused_connection_counts_as_no_answer(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with aiohttp.ClientSession() as session:
        assert await scrape(session, replace(two_pools(tmp_path).pools[0], metrics_port=port)) == []


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
