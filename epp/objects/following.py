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
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dataplane.aside import aside
from dataplane.errors import ConfigError
from dataplane.files import FileSignature
from dataplane.observability.exposition import MetricSet
from epp.objects import schema
from epp.objects.documents import UNDATED_S
from epp.objects.files import Kept, ObjectFiles, Reading
from epp.objects.model import InferenceObjective, ModelRewrite
from epp.objects.snapshot import ObjectHolder, PoolObjects

log = logging.getLogger(__name__)

POLL_S: Final = 0.25
MAX_SAID: Final = 100
"""Problems, notes and skipped documents that are kept for the admin page, each."""
MAX_LOGGED: Final = 20

PREFIX: Final = "pointsman_epp_objects"


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
        self._holder = holder
        self._wall_clock = wall_clock
        self._lock = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None
        self._reading = Reading()
        self._failure: tuple[str, ...] = ()
        """Why the last reading was impossible as a whole."""
        self._applied_at = 0.0
        self._reloads = metrics.counter(
            PREFIX + "_reloads_total", "Readings of the object files by outcome.", ("outcome",)
        )
        metrics.computed(PREFIX, "Objects in use by kind.", ("kind",), self._counts)
        metrics.computed(
            PREFIX + "_problems",
            "What is wrong with the documents of the object files.",
            (),
            lambda: [((), len(self.problems))],
        )

    @property
    def problems(self) -> Sequence[str]:
        """What is wrong with the files as they are."""
        return (*self._failure, *self._reading.problems)

    async def load(self) -> None:
        """Read for the first time. ``ConfigError`` when the file or folder cannot be read."""
        try:
            self._apply(*await aside(lambda: self._read(Reading())))
        except ConfigError as error:
            raise ConfigError(error.message, path=f"--objects-file {error.path}") from error
        self._applied_at = self._wall_clock()

    async def reload(self) -> list[str]:
        """Read now. Returns what is wrong with the documents; the rest is in use."""
        async with self._lock:
            await self._reload(None)
            return list(self.problems[:MAX_SAID])

    async def _reload(self, seen: Sequence[FileSignature] | None) -> bool:
        """Read; False, and nothing has changed, when the files were written while they were read.

        ``seen``: how they looked before; None = that does not matter.
        """
        earlier = self._reading
        try:
            found = await aside(lambda: self._read_settled(earlier, seen))
        except ConfigError as error:
            self._reloads.child("refused").value += 1
            if self._failure != (str(error),):
                log.error("the objects there are stay: %s", error)
            self._failure = (str(error),)
        except Exception as error:  # a defect of ours must not end the following of the files
            log.exception("reading the object files failed; the objects there are stay")
            self._reloads.child("failed").value += 1
            self._failure = (f"internal error: {error}",)
        else:
            if found is None:
                return False
            self._apply(*found)
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
        """JSON-able: the objects in use, at most ``limit`` of a kind, where they are from, what is wrong.

        ``ports`` are those of the pool's endpoints, to be held against what a document says of the pool.
        """
        kept = list(self._reading.objects.values())
        objectives = [(each, each.value) for each in kept if isinstance(each.value, InferenceObjective)]
        rewrites = [(each, each.value) for each in kept if isinstance(each.value, ModelRewrite)]
        pool = self._reading.pool()
        return {
            "appliedAt": self._applied_at,
            "problems": list(self.problems[:MAX_SAID]),
            "skipped": list(self._reading.skipped[:MAX_SAID]),
            "notes": list(self._reading.notes[:MAX_SAID]),
            "pool": None
            if pool is None
            else {
                "name": pool.name,
                "targetPorts": list(pool.target_ports),
                "appProtocol": pool.app_protocol,
                "failureMode": pool.failure_mode,
                "endpointsAtOtherPorts": sum(port not in pool.target_ports for port in ports),
            },
            "totalObjectives": len(objectives),
            "objectives": [
                {"name": value.name, "priority": value.priority, **_source(each)}
                for each, value in objectives[:limit]
            ],
            "totalRewrites": len(rewrites),
            "rewrites": [_rewrite(value) | _source(each) for each, value in rewrites[:limit]],
        }

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

    def _apply(self, reading: Reading, snapshot: PoolObjects | None) -> None:
        before, self._reading, self._failure = self._reading, reading, ()
        self._reloads.child("unchanged" if snapshot is None else "applied").value += 1
        if snapshot is not None:
            self._holder.current = snapshot
            self._applied_at = self._wall_clock()
            counts = ", ".join(f"{count} {kind}" for (kind,), count in self._counts())
            log.info("objects in use: %s", counts)
        for level, said, earlier in (
            (logging.ERROR, reading.problems, before.problems),
            (logging.WARNING, reading.notes, before.notes),
            (logging.INFO, reading.skipped, before.skipped),
        ):
            if said != earlier:
                _log(level, said)

    def _counts(self) -> list[tuple[tuple[str], float]]:
        kinds = Counter(kind for kind, _ in self._reading.objects)
        return [((kind,), kinds[kind]) for kind in schema.VERSIONS]


def _log(level: int, said: Sequence[str]) -> None:
    for each in said[:MAX_LOGGED]:
        log.log(level, "%s", each)
    if len(said) > MAX_LOGGED:
        log.log(level, "and %d more like it", len(said) - MAX_LOGGED)


def _source(kept: Kept) -> dict[str, Any]:
    return {"file": kept.file, "document": kept.place, "outdated": kept.outdated}


def _rewrite(value: ModelRewrite) -> dict[str, Any]:
    dated = value.created_at < UNDATED_S
    return {
        "name": value.name,
        "createdAt": value.created_at if dated else None,
        "rules": [
            {
                "matches": list(rule.matches),
                "targets": [
                    {"modelRewrite": target.model_rewrite, "weight": target.weight} for target in rule.targets
                ],
            }
            for rule in value.rules
        ],
    }
