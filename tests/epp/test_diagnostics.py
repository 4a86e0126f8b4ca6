"""Stacks and profiles show where a process is, and stay bounded."""

import asyncio
import hashlib
import threading

import pytest

from epp import diagnostics
from epp.diagnostics import Profiler, stacks


async def waits_here(event: asyncio.Event) -> None:
    await event.wait()


def blocks_here(event: threading.Event) -> None:
    event.wait()


async def test_stacks_name_threads_and_tasks_and_their_lines():
    over, release = asyncio.Event(), threading.Event()
    task = asyncio.create_task(waits_here(over), name="the-waiting-one")
    thread = threading.Thread(target=blocks_here, args=(release,), name="the-blocked-one")
    thread.start()
    await asyncio.sleep(0)
    try:
        text = stacks()
    finally:
        over.set()
        release.set()
        await task
        thread.join()
    of_task = text.partition("task the-waiting-one\n")[2].partition("\n\n")[0]
    assert "waits_here" in of_task
    assert "await event.wait()" in of_task
    of_thread = text.partition("thread the-blocked-one\n")[2].partition("\n\n")[0]
    assert "blocks_here" in of_thread
    assert of_thread.index("blocks_here") < of_thread.rindex("wait")


async def test_only_so_many_tasks_are_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(diagnostics, "MAX_TASKS", 3)
    over = asyncio.Event()
    tasks = [asyncio.create_task(waits_here(over), name=f"w{i}") for i in range(5)]
    text = stacks()
    over.set()
    await asyncio.gather(*tasks)
    assert text.count("task ") - text.count("more tasks") <= 3
    assert text.endswith("3 more tasks\n")


async def test_a_profile_counts_where_the_thread_is():
    profiler = Profiler()
    running = asyncio.create_task(profiler.profile(0.3))
    await asyncio.sleep(0)
    while not running.done():
        busy_here()
        await asyncio.sleep(0)
    profile = await running
    assert profile is not None
    lines = profile.splitlines()
    assert any("busy_here" in line for line in lines)
    counts = [int(line.rpartition(" ")[2]) for line in lines]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == 30


def busy_here() -> bytes:
    return hashlib.sha256(bytes(8 << 20)).digest()  # lets other threads run meanwhile


async def test_there_is_one_profile_at_a_time_and_one_that_is_given_up_makes_room():
    profiler = Profiler()
    first = asyncio.create_task(profiler.profile(30))
    await asyncio.sleep(0.02)
    assert await profiler.profile(1) is None
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await profiler.profile(0.01) is not None


async def test_a_profile_that_is_stopped_shows_what_it_has_seen():
    profiler = Profiler()
    profiler.stop()
    running = asyncio.create_task(profiler.profile(30))
    await asyncio.sleep(0.05)
    profiler.stop()
    assert await running is not None
    assert await profiler.profile(0.01) is not None


async def test_stacks_beyond_the_most_are_counted_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(diagnostics, "MAX_STACKS", 0)
    profile = await Profiler().profile(0.03)
    assert profile == "(other stacks) 3\n"
