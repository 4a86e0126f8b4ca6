"""The pace of scraping: every item once per interval, spread, and never twice to catch up."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.datalayer.wheel import HANDFUL, MAX_SLICES, Slices, Wheel
from tests.support.waiting import PATIENCE_S


@pytest.mark.parametrize(("interval_s", "slices"), [(0.05, 10), (0.001, 1), (0.1, 20), (5.0, MAX_SLICES)])
def test_slices_are_about_five_milliseconds(interval_s: float, slices: int):
    assert len(Slices(interval_s).items) == slices


def test_a_small_pool_needs_few_wake_ups_and_a_large_one_is_spread_evenly():
    slices: Slices[int] = Slices(0.05)
    for item in range(HANDFUL):
        slices.add(item)
    assert sorted(map(len, slices.items)) == [0] * 9 + [HANDFUL]
    for item in range(HANDFUL, 100):
        slices.add(item)
    assert sorted(map(len, slices.items)) == [10] * 10


@given(st.integers(1, MAX_SLICES), st.integers(0, 300))
def test_every_item_is_due_once_per_interval(count: int, items: int):
    interval_s = count * 0.005
    slices: Slices[int] = Slices(interval_s)
    slices.due((count - 0.5) * slices.width_s)
    for item in range(items):
        slices.add(item)
    for turn in (1, 2):
        due = [
            item for step in range(count) for item in slices.due((turn * count + step + 0.5) * slices.width_s)
        ]
        assert sorted(due) == list(range(items))


def test_rounds_missed_by_a_late_timer_are_not_repeated():
    slices: Slices[int] = Slices(0.05)
    slices.add(1)
    assert slices.due(10.0) == [1]
    assert slices.due(99.0) == [1]
    assert slices.due(99.001) == []


def test_the_next_slice_that_holds_something_is_known():
    slices: Slices[str] = Slices(0.05)
    assert slices.next_due() is None
    slices.due(1.0)
    slices.add("a")
    assert slices.next_due() == pytest.approx(1.05)
    slices.discard("a")
    assert slices.next_due() is None


def test_discarding_an_unknown_item_is_harmless():
    slices: Slices[str] = Slices(0.05)
    slices.discard("a")
    assert len(slices) == 0


async def test_wheel_serves_items_until_they_leave():
    served: list[str] = []
    enough = asyncio.Event()

    def serve(item: str) -> None:
        served.append(item)
        if served.count("a") >= 3:
            wheel.discard("a")
        if served.count("b") >= 6:
            enough.set()

    wheel: Wheel[str] = Wheel(0.01, serve)
    wheel.add("a")
    wheel.start()
    wheel.add("b")
    await asyncio.wait_for(enough.wait(), PATIENCE_S)
    wheel.stop()
    assert served.count("a") == 3


async def test_a_stopped_wheel_serves_nobody():
    served: list[str] = []
    wheel: Wheel[str] = Wheel(0.005, served.append)
    wheel.add("a")
    wheel.start()
    wheel.stop()
    wheel.add("b")
    await asyncio.sleep(0.03)
    assert served == []


async def test_a_newcomer_does_not_wait_for_its_slice():
    served: list[int] = []
    everybody = asyncio.Event()

    def serve(item: int) -> None:
        served.append(item)
        if len(served) == 20:
            everybody.set()

    wheel: Wheel[int] = Wheel(3600.0, serve)
    for item in range(10):
        wheel.add(item)
    wheel.discard(4)
    wheel.start()
    for item in range(10, 21):
        wheel.add(item)
    await asyncio.wait_for(everybody.wait(), PATIENCE_S)
    wheel.stop()
    assert served == [item for item in range(21) if item != 4]
