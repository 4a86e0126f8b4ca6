"""Calls that may block without end, kept beside the event loop and beside the end of the process.

A file on a network file system whose server is gone blocks whoever touches it, for hours. The loop's own
executor is no place for that: the interpreter waits for its threads before it exits. Here each call gets a
daemon thread of its own; a caller that is cancelled goes at once, the thread is left behind and ends with the
process or when the call returns, and what the call found is dropped.

Nothing bounds the number of threads but the callers: each waits for its call before it makes another one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def start_aside(call: Callable[[], T]) -> Future[T]:
    """Begin a call in a thread of its own; the future holds what it returns or raises."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who waits for the call
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return future


async def aside(call: Callable[[], T]) -> T:
    """What ``call`` returns or raises, without blocking the loop or, when cancelled, anybody."""
    return await asyncio.wrap_future(start_aside(call))
