"""Blocking calls block nobody, and what they return or raise arrives."""

import asyncio
import threading

import pytest

from dataplane.aside import aside, start_aside


async def test_what_the_call_returns_arrives():
    assert await aside(lambda: threading.current_thread().daemon) is True


async def test_what_the_call_raises_arrives():
    with pytest.raises(LookupError, match="gone"):
        await aside(lambda: (_ for _ in ()).throw(LookupError("gone")))


async def test_a_cancelled_caller_goes_while_the_call_still_blocks():
    entered, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hang() -> bool:
        loop.call_soon_threadsafe(entered.set)
        return release.wait()

    task = asyncio.create_task(aside(hang))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not release.is_set()
    release.set()


def test_a_call_can_outlive_the_loop_that_asked_for_it():
    release = threading.Event()

    async def ask() -> None:
        asyncio.get_running_loop().create_task(aside(release.wait))
        await asyncio.sleep(0)

    asyncio.run(ask())
    release.set()
    assert start_aside(lambda: "still works").result() == "still works"
