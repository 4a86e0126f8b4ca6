"""Keeps the objects that requests are judged by equal to the documents in files.

The files are looked at every ``POLL_S``, beside the event loop; once they have looked the same twice they are
read, and the snapshot in the holder is replaced as a whole, on the loop. SIGHUP and the admin page have them
read at once. What cannot be read changes nothing and is kept for the admin page, the metrics and the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dataplane.aside import aside
from dataplane.errors import ConfigError
from dataplane.files import FileSignature
from dataplane.observability.exposition import MetricSet
from epp.objects.files import ObjectFiles, Reading
from epp.objects.keeping import MAX_SAID, ObjectKeeper
from epp.objects.snapshot import ObjectHolder, PoolObjects

log = logging.getLogger(__name__)

POLL_S: Final = 0.25


class ObjectFollower:
    """Owns what is in the holder. ``load`` comes first."""

    def __init__(
        self,
        files: ObjectFiles,
        holder: ObjectHolder,
        metrics: MetricSet,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._files = files
        self._wall_clock = wall_clock
        self._keeper = ObjectKeeper(holder, metrics, wall_clock)
        self._lock = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None

    @property
    def problems(self) -> Sequence[str]:
        """What is wrong with the files as they are."""
        return self._keeper.problems

    async def load(self) -> None:
        """Read for the first time. ``ConfigError`` when the file or folder cannot be read."""
        try:
            self._keeper.apply(*await aside(lambda: self._read(Reading())))
        except ConfigError as error:
            raise ConfigError(error.message, path=f"--objects-file {error.path}") from error
        self._keeper.applied_at = self._wall_clock()

    async def reload(self) -> list[str]:
        """Read now. Returns what is wrong with the documents; the rest is in use."""
        async with self._lock:
            await self._reload(None)
            return list(self.problems[:MAX_SAID])

    async def _reload(self, seen: Sequence[FileSignature] | None) -> bool:
        """Read; False, and nothing has changed, when the files were written while they were read.

        ``seen``: how they looked before; None = that does not matter.
        """
        earlier = self._keeper.reading
        try:
            found = await aside(lambda: self._read_settled(earlier, seen))
        except ConfigError as error:
            self._keeper.refuse("refused", [str(error)])
        except Exception as error:  # a defect of ours must not end the following of the files
            log.exception("reading the object files failed; the objects there are stay")
            self._keeper.refuse("failed", [f"internal error: {error}"])
        else:
            if found is None:
                return False
            self._keeper.apply(*found)
        return True

    def watch(self) -> None:
        """Read whenever the files have changed, on the running event loop."""
        self._watcher = asyncio.get_running_loop().create_task(self._watch(), name="objects-watch")

    async def stop(self) -> None:
        """Watch no longer; the objects stay. Does not wait for a file system that hangs."""
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None

    def describe(self, limit: int, ports: Iterable[int] = ()) -> dict[str, Any]:
        """As ``ObjectKeeper.describe``."""
        return self._keeper.describe(limit, ports)

    async def _watch(self) -> None:
        applied = seen = await aside(self._files.signature)
        await self.reload()  # what has changed between the first reading and the first look
        while True:
            await asyncio.sleep(POLL_S)
            before, seen = seen, await aside(self._files.signature)
            if seen != applied and seen == before:
                async with self._lock:
                    if await self._reload(seen):
                        applied = seen

    def _read_settled(
        self, earlier: Reading, seen: Sequence[FileSignature] | None
    ) -> tuple[Reading, PoolObjects | None] | None:
        """As ``_read``; None when the files do not look any more as they were ``seen``."""
        found = self._read(earlier)
        return found if seen is None or self._files.signature() == seen else None

    def _read(self, earlier: Reading) -> tuple[Reading, PoolObjects | None]:
        """The files, and the snapshot of their objects unless they are the earlier ones. Blocks."""
        reading = self._files.read(earlier)
        if earlier.objects == reading.objects:
            return reading, None
        return reading, PoolObjects(reading.objectives(), reading.rewrites())
