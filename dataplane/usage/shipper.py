"""Carries records from the journal to where the control plane reads them.

One task. It delivers in batches and forgets a batch only when it has arrived for certain; while nobody is
there, or the other side has no room, it waits, twice as long each time, and the journal keeps everything. A
batch whose answer was lost is sent again: records have ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from dataplane.usage.journal import Journal

log = logging.getLogger(__name__)

BATCH: Final = 1000
IDLE_S: Final = 0.25
FIRST_DELAY_S: Final = 0.5
MAX_DELAY_S: Final = 10.0
LAST_S: Final = 2.0
"""How long the end of the process waits for the last records to arrive; others stay in the journal."""


class DeliveryError(Exception):
    """The batch has not arrived, or nobody knows whether it has."""


class Destination(Protocol):
    """Takes records."""

    async def add(self, records: Sequence[bytes]) -> None:
        """Returns when all have arrived and survive. ``DeliveryError`` otherwise."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class Shipper:
    """Delivers until it is stopped."""

    def __init__(self, journal: Journal, destination: Destination) -> None:
        self.shipped = 0
        self.failures = 0
        self._journal = journal
        self._destination = destination
        self._task: asyncio.Task[None] | None = None
        self._delay_s = 0.0

    def start(self) -> None:
        """Begin; what an earlier process left is delivered first."""
        self._task = asyncio.create_task(self._run(), name="usage shipper")

    async def stop(self) -> None:
        """Deliver the rest if that is quick, then end. Safe in any state."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                while self._delay_s == 0.0 and await self.ship():
                    pass
        await self._destination.close()

    async def ship(self) -> bool:
        """One batch; False when there is nothing to deliver or it did not arrive."""
        found = self._journal.first(BATCH)
        if found is None:
            return False
        segment, records, offset = found
        try:
            await self._destination.add(records)
        except DeliveryError as error:
            if self._delay_s == 0.0:
                log.warning("usage records stay in the journal: %s", error)
            self.failures += 1
            self._delay_s = min(MAX_DELAY_S, max(FIRST_DELAY_S, 2 * self._delay_s))
            return False
        if self._delay_s:
            log.info("usage records are delivered again")
        self._delay_s = 0.0
        self._journal.deliver(segment, offset)
        self.shipped += len(records)
        return True

    async def _run(self) -> None:
        while True:
            if not await self.ship():
                await asyncio.sleep(self._delay_s or IDLE_S)
