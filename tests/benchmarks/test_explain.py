"""The explain benchmark's batches and verdicts."""

import msgspec
import pytest

from benchmarks.explain import (
    Batches,
    ExplainCell,
    ExplainOptions,
    ExplainResult,
    complaints,
    measure,
    render,
    trimmed,
)
from benchmarks.machine import describe_machine


def result(*ratios: float, share: float = 0.01) -> ExplainResult:
    cells = [ExplainCell(10, 200, 100.0, 100.0 * ratio, 150.0) for ratio in ratios]
    return ExplainResult(describe_machine(), ExplainOptions(share=share), cells)


@pytest.mark.parametrize(("share", "size"), [(0.01, 100), (0.25, 4), (1.0, 1)])
def test_a_batch_holds_exactly_one_trace(share: float, size: int):
    batches = Batches(endpoints=2, prompt_tokens=32, share=share, seed=1)
    assert batches.size == size
    for count in (1, 2, 3):
        assert batches.run(batches.sampled, size) > 0
        traced = [d for d in batches.sampled.decisions.recent(1000) if d["traced"]]
        assert len(traced) == count
    batches.run(batches.off, 10)
    assert [d for d in batches.off.decisions.recent(1000) if d["traced"]] == []
    assert batches.decisions.table.inflight.sum() == 0


def test_combination_is_measured():
    cell = measure(3, 64, ExplainOptions(share=0.5, rounds=4))
    assert (cell.endpoints, cell.prompt_tokens) == (3, 64)
    assert min(cell.off_us, cell.sampled_us, cell.traced_us) > 0


def test_the_slowest_quarter_does_not_count():
    assert trimmed([4.0, 1.0, 100.0, 1.0]) == 2.0
    assert trimmed([7.0]) == 7.0


def test_a_share_that_costs_too_much_is_complained_about_where_something_is_promised():
    one = result(1.03, 1.04)
    assert complaints(one) == [
        "10 endpoints, 200 prompt tokens: decisions cost 4.0% more, promised at most 3%"
    ]
    assert [line.split()[-1] for line in render(one).splitlines()[2:]] == ["ok", "MISSED"]
    assert "MISSED" not in render(one, judged=False)
    assert complaints(result(1.5, share=0.5)) == []
    assert render(result(1.5, share=0.5)).split()[-1] == "150.0", "no verdict"


def test_result_survives_json():
    value = result(1.0)
    assert msgspec.json.decode(msgspec.json.encode(value), type=ExplainResult) == value
