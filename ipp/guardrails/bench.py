"""Where large bodies are looked at: threads beside the event loop, and a budget for the answers that wait.

A look that its exchange has given up goes on to its end, since no thread can be stopped, and counts until
then; so whoever sends large bodies and leaves has no more threads at work than anybody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from dataplane.aside import start_aside
from ipp.guardrails.verdicts import Outcome, Refusal

log = logging.getLogger(__name__)

MAX_ASIDE: Final = 4
"""Threads at work at a time."""
BUDGET_BYTES: Final = 1 << 30
"""Of all answers that are being collected."""

T = TypeVar("T")


class Bench:
    """One for all exchanges of a plugin."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._room = asyncio.Semaphore(MAX_ASIDE)
        self._left = budget_bytes
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, call: Callable[[], T]) -> T:
        """What ``call`` returns or raises, once there is room for it."""
        await self._room.acquire()
        loop = asyncio.get_running_loop()
        future = start_aside(call)

        def done(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(self._room.release)

        future.add_done_callback(done)
        return await asyncio.wrap_future(future)

    def charge(self, size: int) -> bool:
        """Note that answers hold so many bytes more, less when negative; False when that is too much."""
        self._left -= size
        return self._left >= 0

    def judge(self, check: Callable[[], Outcome], take: Callable[[Outcome], None], refusal: Refusal) -> None:
        """Have ``take`` called with what ``check`` finds, or with the refusal when it fails."""

        async def look() -> None:
            try:
                found = await self.run(check)
            except Exception:  # a defect must neither let the answer pass nor keep the client waiting
                log.exception("an answer could not be judged")
                found = refusal.outcome()
            take(found)

        task = asyncio.get_running_loop().create_task(look(), name="guardrails")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
