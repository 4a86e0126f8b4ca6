"""Where large bodies are looked at: threads beside the event loop, and a cap on what waits for one.

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
from dataplane.errors import ServiceUnavailableError
from ipp.guardrails.answers import FULL
from ipp.guardrails.verdicts import UNAVAILABLE, Outcome, Refusal

log = logging.getLogger(__name__)

MAX_ASIDE: Final = 4
"""Threads at work at a time."""
BUSY: Final = "rejected-guardrails-busy"
"""The dropped reason of a request that finds too many others."""
MAX_WAITING_BYTES: Final = 64 << 20
"""Of all bodies that wait for a thread; what comes beyond is refused. One body may always wait."""
BUDGET_BYTES: Final = 1 << 30
"""Of all answers that are being collected."""

T = TypeVar("T")


class Bench:
    """One for all exchanges of a plugin."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._room = asyncio.Semaphore(MAX_ASIDE)
        self._waiting = 0
        self._left = budget_bytes
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, call: Callable[[], T], size: int) -> T:
        """What ``call`` makes of so many bytes, or raises, once there is room for it.

        ``ServiceUnavailableError`` at once when too many bytes wait for room already.
        """
        if self._room.locked() and self._waiting and self._waiting + size > MAX_WAITING_BYTES:
            raise ServiceUnavailableError(
                "too many large bodies are being looked at by guardrails; try again",
                error_code=UNAVAILABLE,
                dropped_reason=BUSY,
            )
        self._waiting += size
        try:
            await self._room.acquire()
        finally:
            self._waiting -= size
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

    def judge(
        self, check: Callable[[], Outcome], take: Callable[[Outcome], None], refusal: Refusal, size: int
    ) -> None:
        """Have ``take`` called with what ``check`` finds, or with the refusal when it fails.

        ``size``: bytes that are looked at.
        """

        async def look() -> None:
            try:
                found = await self.run(check, size)
            except ServiceUnavailableError:
                found = FULL.outcome()
            except Exception:  # a defect must neither let the answer pass nor keep the client waiting
                log.exception("an answer could not be judged")
                found = refusal.outcome()
            take(found)

        task = asyncio.get_running_loop().create_task(look(), name="guardrails")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
