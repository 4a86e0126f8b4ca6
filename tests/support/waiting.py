"""Waiting for what another process or thread does: until it is so, or for longer than a busy machine takes.

Only a test that fails waits so long, so the one patience is that of the slowest machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

PATIENCE_S: Final = 120.0
POLL_S: Final = 0.01

T = TypeVar("T")


def wait_until(find: Callable[[], T], why: Callable[[], object] = lambda: "") -> T:
    """What ``find`` returns once that is true; ``why`` tells what there is instead when patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := find()):
        assert time.monotonic() < deadline, why() or "it does not come to be so"
        time.sleep(POLL_S)
    return found


async def until(find: Callable[[], T | Awaitable[T]], why: Callable[[], object] = lambda: "") -> T:
    """`wait_until`, for a loop that others share; ``find`` may be a coroutine function."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = find()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, why() or "it does not come to be so"
        await asyncio.sleep(POLL_S)
