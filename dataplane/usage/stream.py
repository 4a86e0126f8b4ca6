"""The Valkey stream that takes records from all workers.

Nobody trims it but its reader, which deletes what it has in its database. When it holds ``MAX_ENTRIES`` that
nobody has read, workers add nothing more and keep their records, so that Valkey's memory has a bound and
nothing is lost. Where Valkey keeps an append-only file, records count as arrived when they are in it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import redis.asyncio
from redis import RedisError, ResponseError

from dataplane.usage.record import FIELD, STREAM
from dataplane.usage.shipper import DeliveryError

log = logging.getLogger(__name__)

MAX_ENTRIES: Final = 500_000
SYNC_TIMEOUT_MS: Final = 2000


class UsageStream:
    """A ``Destination``. Takes over the client, which must keep to one connection."""

    def __init__(self, client: redis.asyncio.Redis, *, max_entries: int = MAX_ENTRIES) -> None:
        self._client = client
        self._max_entries = max_entries
        self._can_sync = True

    async def add(self, records: Sequence[bytes]) -> None:
        """Add all; some may be there when it fails."""
        try:
            waiting = await self._client.xlen(STREAM)
            if waiting >= self._max_entries:
                raise DeliveryError(f"{waiting} records wait in Valkey; is 'controlplane run-tasks' there?")
            async with self._client.pipeline(transaction=False) as pipeline:
                for record in records:
                    pipeline.xadd(STREAM, {FIELD: record})
                await pipeline.execute()
            await self._sync()
        except (RedisError, OSError) as error:
            raise DeliveryError(f"Valkey: {error}") from None

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def _sync(self) -> None:
        if not self._can_sync:
            return
        try:
            local, _ = await self._client.waitaof(1, 0, SYNC_TIMEOUT_MS)
        except ResponseError as error:
            self._can_sync = False
            log.warning("Valkey keeps no append-only file, so usage records do not survive it: %s", error)
            return
        if not local:
            raise DeliveryError("Valkey does not write its append-only file")
