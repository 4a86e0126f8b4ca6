"""The scheduling benchmark's pool, requests and verdicts."""

import gc

import msgspec
import pytest

from benchmarks.machine import describe_machine
from benchmarks.schedule import (
    Cell,
    Decisions,
    ScheduleOptions,
    ScheduleResult,
    collecting_like_the_picker,
    complaints,
    measure,
    render,
)
from benchmarks.stats import summarize


def cell(endpoints: int, prompt_tokens: int, p50_us: float) -> Cell:
    times = summarize([p50_us])
    return Cell(endpoints, prompt_tokens, 4 * prompt_tokens, summarize([1.0]), times, times, p50_us)


def result(*cells: Cell) -> ScheduleResult:
    return ScheduleResult(describe_machine(), ScheduleOptions(), list(cells))


def test_decided_requests_stay_in_flight_up_to_the_window():
    decisions = Decisions(endpoints=4, prompt_tokens=64, seed=1)
    for _ in range(40):
        decisions.decide()
    assert len(decisions.in_flight) == 16
    assert decisions.table.inflight.sum() == 16
    assert decisions.table.stale == 0


def test_requests_share_prefixes_that_the_picker_finds_again():
    decisions = Decisions(endpoints=4, prompt_tokens=400, seed=1)
    for _ in range(200):
        decisions.decide()
    (producer,) = (one for one in decisions.director.graph.producers if hasattr(one, "indexed_blocks"))
    assert 0 < producer.indexed_blocks < 200 * 25


def test_same_seed_same_requests():
    first, again = (Decisions(endpoints=2, prompt_tokens=64, seed=3) for _ in range(2))
    assert next(first.requests).body == next(again.requests).body


def test_combination_is_measured():
    found = measure(3, 64, ScheduleOptions(samples=20))
    assert (found.endpoints, found.prompt_tokens, found.total_us.count) == (3, 64, 20)
    assert found.body_bytes > 256
    assert found.total_us.p50 >= found.decide_us.p50 > 0


def test_collector_is_as_before_afterwards():
    before = gc.get_threshold()
    with collecting_like_the_picker():
        assert gc.get_threshold() != before
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_slow_decision_is_complained_about_where_a_time_is_promised():
    one = result(cell(1000, 8000, 999.0), cell(1000, 8000, 1000.0), cell(2000, 8000, 5000.0))
    assert complaints(one) == ["1000 endpoints, 8000 prompt tokens: p50 1000 µs, promised below 1000 µs"]
    verdicts = [line.split()[-1] for line in render(one).splitlines()[2:]]
    assert verdicts == ["ok", "MISSED", "5,000"]
    assert "MISSED" not in render(one, judged=False)


@pytest.mark.parametrize("value", [result(cell(8, 500, 10.0))])
def test_result_survives_json(value: ScheduleResult):
    assert msgspec.json.decode(msgspec.json.encode(value), type=ScheduleResult) == value
