"""From measurements to rows, ratios and complaints."""

import msgspec
import pytest

from benchmarks.envoy_config import Mode
from benchmarks.extproc_plan import (
    ExtProcOptions,
    ExtProcResult,
    Kind,
    Measurement,
    Scenario,
    Server,
    Variant,
)
from benchmarks.extproc_report import complaints, ratios, render, rows
from benchmarks.machine import describe_machine
from benchmarks.stats import summarize

OPTIONS = ExtProcOptions(repeat=3)
CPU_US = {
    (Server.NONE, None): (200.0, 0.0),
    (Server.EPP, Mode.FULL_DUPLEX): (400.0, 160.0),
    (Server.EPP, Mode.REQUEST_ONLY): (300.0, 110.0),
    (Server.GRPC_AIO, Mode.FULL_DUPLEX): (600.0, 1000.0),
    (Server.GRPC_AIO, Mode.REQUEST_ONLY): (500.0, 600.0),
}
"""CPU per request of Envoy and of the server behind it."""


def measurement(scenario: Scenario, variant: Variant, number: int, **changes: object) -> Measurement:
    envoy_us, server_us = CPU_US[variant.server, variant.mode]
    drift = (1.0, 1.5, 0.9)[number - 1]
    stream = scenario.kind is Kind.STREAM
    requests = 1000
    one = Measurement(
        scenario=scenario,
        server=variant.server,
        mode=variant.mode,
        round=number,
        seconds=2.0,
        requests=requests,
        errors={},
        latency_us=summarize([1000.0, 2000.0, 4000.0]),
        latency_histogram_us=[],
        cpu_s={
            "envoy": envoy_us * drift * requests / 1e6,
            "server": server_us * drift * requests / 1e6,
            "upstream": 0.05,
        },
        sse_chunks=100 * requests if stream else 0,
        ext_proc={"stream_msgs_sent": 3 * requests, "spurious_msgs_received": 0, "streams_failed": 0},
        foreign_cores=0.25,
        stolen_cores=0.0,
    )
    return msgspec.structs.replace(one, **changes)


def result(options: ExtProcOptions = OPTIONS, **changes: object) -> ExtProcResult:
    return ExtProcResult(
        machine=describe_machine(),
        envoy="1.40.0",
        options=options,
        measurements=[
            measurement(scenario, variant, number, **changes)
            for scenario in options.scenarios()
            for number in range(1, options.repeat + 1)
            for variant in options.variants(scenario)
        ],
        epp_idle_cores=0.021,
        epp_resident_bytes=64 * 2**20,
    )


def test_rows_hold_medians_per_scenario_and_variant():
    found = rows(result())
    assert len(found) == 5 + 5 + 5 + 3
    one = next(row for row in found if (row.scenario, row.variant) == ("2048 B body", "epp/full-duplex"))
    assert one.server_us == pytest.approx(160)
    assert one.envoy_us == pytest.approx(400)
    assert (one.requests_per_s, one.p50_ms, one.p99_ms, one.messages_per_request) == (500, 2, 4, 3)


def test_streams_cost_per_chunk():
    one = next(
        row for row in rows(result()) if (row.scenario, row.variant) == ("stream", "grpc-aio/full-duplex")
    )
    assert (one.server_us_per_chunk, one.envoy_us_per_chunk) == (pytest.approx(10), pytest.approx(6))


def test_ratios_are_formed_within_a_round():
    """The machine is half as fast in one round and ratios do not notice."""
    values = {one.name: (one.value and round(one.value, 4), one.limit) for one in ratios(result())}
    assert values["EPP / Envoy alone, CPU per request, 2048 B body at 500 req/s, full-duplex"] == (0.8, 0.85)
    assert values["EPP / Envoy alone, CPU per request, 2048 B body at 500 req/s, request-only"] == (0.55, 0.6)
    assert values["EPP / Envoy alone, CPU per request, 2048 B body, full-duplex"] == (0.8, None)
    assert values["EPP / grpc.aio, CPU per request, 2048 B body, full-duplex"] == (0.16, 0.22)
    assert values["EPP / grpc.aio, CPU per request, 2048 B body at 500 req/s, full-duplex"] == (0.16, 0.22)
    assert values["EPP / grpc.aio, CPU per request, 40960 B body, request-only"] == (0.1833, 0.35)
    assert values["EPP / grpc.aio, CPU per chunk, stream, full-duplex"] == (0.16, 0.4)


def test_nothing_is_complained_about_when_all_is_as_promised():
    assert complaints(result()) == []


def test_missed_ratio_is_complained_about():
    one = result()
    worse = [
        msgspec.structs.replace(m, cpu_s={**m.cpu_s, "server": m.cpu_s["server"] * 2})
        if m.scenario.kind is Kind.LARGE and m.variant == Variant(Server.EPP, Mode.REQUEST_ONLY)
        else m
        for m in one.measurements
    ]
    assert complaints(msgspec.structs.replace(one, measurements=worse)) == [
        "EPP / grpc.aio, CPU per request, 40960 B body, request-only: 0.37, promised at most 0.35"
    ]


def test_spurious_messages_failed_streams_and_errors_are_complained_about():
    options = ExtProcOptions(
        repeat=1,
        servers=(Server.NONE,),
        paced_rate=0,
        large_body_bytes=0,
        sse_chunks=0,
    )
    found = complaints(
        result(
            options,
            ext_proc={"spurious_msgs_received": 1, "streams_failed": 2},
            errors={"status 500": 3},
        )
    )
    assert found == [
        "2048 B body, envoy: 1 spurious ext_proc messages",
        "2048 B body, envoy: 2 ext_proc streams failed",
        "2048 B body, envoy: 3 wrong or missing answers",
    ]


def test_ratio_without_one_side_is_not_met():
    options = msgspec.structs.replace(OPTIONS, servers=(Server.EPP,))
    assert {one.value for one in ratios(result(options))} == {None}
    assert any("measured" not in text and "-, promised" in text for text in complaints(result(options)))
    assert complaints(result(options), measured_only=True) == []


def test_no_ratio_without_the_picker():
    assert ratios(result(msgspec.structs.replace(OPTIONS, servers=(Server.NONE, Server.GRPC_AIO)))) == []


def test_table_shows_every_scenario_and_the_ratios():
    text = render(result())
    for part in (
        "2048 B body, 16 connections, closed loop",
        "2048 B body at 500 req/s, 16 connections, same load for all",
        "40960 B body, 16 connections, closed loop",
        "stream, 8 connections, closed loop",
        "server µs/chunk",
        "EPP without traffic: 0.021 cores (scraping 8 endpoints every 50ms); memory at the end 64 MiB",
        "CPU used by others meanwhile: 0.25 cores",
    ):
        assert part in text
    assert "MISSED" not in text
    assert {line.split()[-1] for line in text.splitlines() if line.startswith("EPP / grpc")} == {"ok"}
    unjudged = render(result(), judged=False)
    assert {line.split()[-1] for line in unjudged.splitlines() if line.startswith("EPP / grpc")} & {
        "ok"
    } == set()


def test_result_survives_json():
    one = result()
    assert msgspec.json.decode(msgspec.json.encode(one), type=ExtProcResult) == one
