"""Spans leave a real picker process over OTLP/HTTP, as the environment says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import grpc.aio
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tests.support.black_box import (
    ANSWERED,
    METHOD,
    request_body,
    request_headers,
    set_headers,
)
from tests.support.collector import Collector
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.integration

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    """A running collector."""
    collector = Collector()
    await collector.start()
    yield collector
    await collector.stop()


async def started(folder: Path, environment: dict[str, str]) -> tuple[asyncio.subprocess.Process, int, int]:
    """A picker process over two endpoints, and the ports of its ext_proc service and its metrics."""
    endpoints = folder / "endpoints.json"
    listed = [{"name": f"e{i}", "address": "127.0.0.1", "port": str(i)} for i in (1, 2)]
    endpoints.write_text(json.dumps({"endpoints": listed}))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli.main", "epp", "--host=127.0.0.1", "--secure-serving=false",
        "--grpc-port=0", "--grpc-health-port=0", "--metrics-port=0", f"--endpoints-file={endpoints}",
        env={**os.environ, **environment}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    async for line in process.stderr:
        if found := re.search(rb"ext_proc on port (\d+), .* metrics on port (\d+)", line):
            return process, int(found[1]), int(found[2])
    raise AssertionError("the picker has not started")


async def ask(port: int) -> pb.ProcessingResponse:
    """One request of a traced caller, answered by its model server; what is said to the request."""
    messages = (
        request_headers(("traceparent", CALLER)),
        request_body({"model": "m", "prompt": "hello"}, end=True),
        *ANSWERED,
    )
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream(
            METHOD,
            request_serializer=pb.ProcessingRequest.SerializeToString,
            response_deserializer=pb.ProcessingResponse.FromString,
        )
        answers = [answer async for answer in call(iter(messages), timeout=PATIENCE_S)]
        return answers[0]


async def until_exposed(port: int, line: str) -> None:
    """Until the metrics page of a process has this line."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE_S):
        while True:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as page:
                if line in (await page.text()).splitlines():
                    return
            await asyncio.sleep(0.02)


async def test_spans_of_a_process_reach_the_collector(tmp_path: Path, collector: Collector):
    process, port, metrics = await started(
        tmp_path,
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_TRACES_SAMPLER": "parentbased_always_off",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        },
    )
    answer = await ask(port)
    await until_exposed(metrics, 'pointsman_epp_spans_total{outcome="exported"} 9')
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0

    assert {service for service, _ in collector.spans} == {"llm-d-epp"}
    spans = {span.name: span for _, span in collector.spans}
    assert {span.trace_id.hex() for span in spans.values()} == {TRACE_ID}
    names = {span.span_id: name for name, span in spans.items()}
    parents = {name: span.parent_span_id for name, span in spans.items()}
    assert {name: names.get(parent, parent.hex()) for name, parent in parents.items()} == {
        "gateway.request": "b7ad6b7169203331",
        "gateway.request_orchestration": "gateway.request",
        "run_scheduler_profile": "gateway.request_orchestration",
        "filter_endpoints": "run_scheduler_profile",
        "llm_d.epp.scoring": "run_scheduler_profile",
        "llm_d.epp.scorer.queue-scorer": "llm_d.epp.scoring",
        "llm_d.epp.scorer.kv-cache-utilization-scorer": "llm_d.epp.scoring",
        "llm_d.epp.scorer.prefix-cache-scorer": "llm_d.epp.scoring",
        "pick_endpoints": "run_scheduler_profile",
    }
    whole = spans["gateway.request"]
    assert set_headers(answer)["traceparent"] == f"00-{TRACE_ID}-{whole.span_id.hex()}-01"
    said = {each.key: each.value for each in whole.attributes}
    assert said["gen_ai.request.model"].string_value == "m"
    assert said["gen_ai.request.id"].string_value == "r1"
    assert said["http.response.status_code"].int_value == 200


async def test_a_process_told_not_to_trace_sends_nothing(tmp_path: Path, collector: Collector):
    process, port, _ = await started(
        tmp_path,
        {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}", "OTEL_SDK_DISABLED": "true"},
    )
    answer = await ask(port)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    assert "traceparent" not in set_headers(answer)
    assert collector.spans == []


async def test_a_collector_that_is_away_costs_no_request_and_no_clean_end(tmp_path: Path):
    process, port, metrics = await started(
        tmp_path,
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_TRACES_SAMPLER": "always_on",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        },
    )
    answer = await ask(port)
    await until_exposed(metrics, 'pointsman_epp_spans_total{outcome="failed"} 9')
    assert "x-gateway-destination-endpoint" in set_headers(answer)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def test_a_mistake_in_the_environment_ends_the_start(tmp_path: Path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli.main", "epp", "--host=127.0.0.1",
        env={**os.environ, "OTEL_TRACES_EXPORTER": "otpl"}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"OTEL_TRACES_EXPORTER: 'otpl' is not known" in said
