"""Publishes a worker's summaries to Valkey, once a second, and does without when it is away.

A summary is of interest for some minutes and no longer: one that cannot be delivered is dropped, the next one
is tried a second later. The stream has a cap, so nobody has to tidy it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

import msgspec
import redis.asyncio
from redis import RedisError

from dataplane.telemetry.summary import FIELD, MAX_ENTRIES, STREAM, ProcessorSummary, Summary

log = logging.getLogger(__name__)

PERIOD_S: Final = 1.0


class Publisher:
    """Asks for a summary every second. Takes over the client."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        summarise: Callable[[], Summary | ProcessorSummary],
        stream: str = STREAM,
    ) -> None:
        self._client = client
        self._stream = stream
        self._summarise = summarise
        self._encode = msgspec.json.Encoder().encode
        self._is_heard = True
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="telemetry")

    async def stop(self) -> None:
        """End. Safe in any state."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._client.aclose()

    async def publish(self) -> bool:
        """One summary; whether it was delivered."""
        text = self._encode(self._summarise())
        try:
            await self._client.xadd(self._stream, {FIELD: text}, maxlen=MAX_ENTRIES, approximate=True)
        except (RedisError, OSError) as error:
            if self._is_heard:
                log.warning("telemetry is not published: Valkey: %s", error)
            self._is_heard = False
            return False
        if not self._is_heard:
            log.info("telemetry is published again")
        self._is_heard = True
        return True

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + PERIOD_S, loop.time())
            await asyncio.sleep(due - loop.time())
            await self.publish()
