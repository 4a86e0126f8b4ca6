"""What the load study benchmark makes of its readings."""

import msgspec
import pytest

from benchmarks.extproc_plan import Kind, Measurement, Scenario, Server
from benchmarks.machine import describe_machine
from benchmarks.stats import summarize
from benchmarks.study import CASES, Finding, StudyOptions, StudyResult, complaints, render

OPTIONS = StudyOptions(answer_tokens=100)


def finding(number: int, *, requests: int, chunks: int = 0, server_s: float, errors: int = 0) -> Finding:
    measured = Measurement(
        scenario=CASES[number].scenario(OPTIONS),
        server=Server.EPP,
        mode=None,
        round=1,
        seconds=10.0,
        requests=requests,
        errors={"reset": errors} if errors else {},
        latency_us=summarize([2000.0]),
        latency_histogram_us=[],
        cpu_s={"envoy": 1.0, "server": server_s},
        sse_chunks=chunks,
        ext_proc={},
        foreign_cores=0.0,
        stolen_cores=0.0,
    )
    return Finding(CASES[number], measured, OPTIONS.answer_tokens)


def result(*findings: Finding) -> StudyResult:
    return StudyResult(describe_machine(), "1.40.0", OPTIONS, list(findings))


def test_cases_are_those_of_the_study():
    assert [case.scenario(OPTIONS) for case in CASES] == [
        Scenario(Kind.PACED, 1000, 16, rate=500.0),
        Scenario(Kind.MAIN, 1000, 16),
        Scenario(Kind.PACED, 400_200, 16, rate=10.0),
        Scenario(Kind.STREAM, 1000, 4),
    ]
    assert [case.published.cpu_ms_per_request for case in CASES] == pytest.approx([9.8, 9.8, 150.0, 370.0])


def test_cost_per_request_stands_next_to_the_published_one():
    one = finding(0, requests=5000, server_s=2.45)
    assert one.cpu_ms("server") == pytest.approx(0.49)
    assert one.lead == pytest.approx(20.0)
    row = render(result(one)).splitlines()[2]
    assert row.split()[-6:] == ["500.0", "2.0", "0.200", "0.490", "9.8", "20.0"]


def test_unfinished_streams_count_by_their_chunks():
    one = finding(3, requests=1, chunks=250, server_s=0.025)
    assert one.requests == 2.5
    assert one.cpu_ms("server") == pytest.approx(10.0)


def test_wrong_answers_are_complained_about():
    assert complaints(result(finding(1, requests=5, server_s=1.0))) == []
    assert complaints(result(finding(1, requests=5, server_s=1.0, errors=2))) == [
        "200-token prompts, highest rate: wrong or missing answers {'reset': 2}"
    ]


def test_result_survives_json():
    one = result(finding(1, requests=5, server_s=1.0))
    assert msgspec.json.decode(msgspec.json.encode(one), type=StudyResult) == one
