"""All local pools: what the database wants is brought about, and what there is is reported.

The database is looked at several times a second, and read when a cheap marker has changed. While it cannot be
asked, everything goes on with what was last read, which is kept in a file for a start without a database.
Everything runs on the event loop's thread but the calls to the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from controlplane.fleet.local.access import ControlPlane, PoolAccess, kept_token
from controlplane.fleet.local.database import Source, SourceError
from controlplane.fleet.local.pool import LocalPool
from controlplane.fleet.local.probe import Probe, probe
from controlplane.fleet.local.wanted import MAX_POOLS, Wanted, WantedPool
from dataplane.processes.child import Say
from dataplane.processes.folder import write_atomically
from dataplane.processes.log_files import CHECK_EVERY_S, trim_folder
from dataplane.processes.ports import Ports

POLL_S: Final = 0.3
READ_ANYWAY_S: Final = 30.0
"""Longest time between two readings, whatever the marker says."""
REPORT_S: Final = 1.0
PROBES_AT_ONCE: Final = 16
LOG_CAP_BYTES: Final = 8 << 20
"""Of each process's log; as much again is kept of what was before."""
LAST_WANTED: Final = "wanted.json"


class FleetRunner:
    """Runs pools until it is cancelled; then every process has ended."""

    def __init__(self, source: Source, folder: Path, control_plane: ControlPlane, say: Say) -> None:
        self._source = source
        self._folder = folder
        self._control_plane = control_plane
        self._say = say
        self._choose = Ports(random.SystemRandom())
        self._pools: dict[str, LocalPool] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._tokens: Mapping[str, str] = {}
        """Pool -> its picker's, as far as the database was asked."""
        self._trouble = ""
        self._is_first = True
        self._beyond = 0

    async def run(self) -> None:
        """For ever."""
        try:
            async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._tell(session))
                group.create_task(self._keep_logs_small())
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> None:
        """Take what the database wants whenever that changes."""
        seen: object = None
        read_at = 0.0
        while True:
            try:
                marker = await self._source.marker()
                if marker != seen or time.monotonic() - read_at > READ_ANYWAY_S:
                    await self._read()
                    seen, read_at = marker, time.monotonic()
                self._note("")
            except SourceError as error:
                if self._is_first:
                    self._take_kept()
                self._note(f"{error}; going on with {len(self._pools)} pools")
            await asyncio.sleep(POLL_S)

    async def _read(self) -> None:
        """Take what is wanted, also while nobody hands out tokens."""
        wanted = await self._source.wanted()
        refusal: SourceError | None = None
        try:
            self._tokens = await self._source.tokens(self._held(wanted.pools))
        except SourceError as error:
            refusal = error
        self.take(wanted)
        self._keep(wanted)
        if refusal is not None:
            raise refusal

    def take(self, wanted: Wanted) -> None:
        """Have these pools run, and no others."""
        if wanted.beyond != self._beyond:
            self._say(f"{wanted.beyond} pools are not run: one runner runs at most {MAX_POOLS}")
            self._beyond = wanted.beyond
        pools = {pool.name: pool for pool in wanted.pools}
        if self._is_first:
            self._forget_others(set(pools))
        self._is_first = False
        for name, running in self._pools.items():
            if name not in pools:
                running.want(None, "")
        for pool in pools.values():
            self._take_one(pool)

    def _take_one(self, pool: WantedPool) -> None:
        token = self._tokens.get(pool.name, "")
        if pool.name in self._pools:
            self._pools[pool.name].want(pool, token)
            return
        folder = self._folder_of(pool.name)
        access = PoolAccess(pool.name, folder, self._control_plane)
        running = LocalPool(pool, folder, access, self._choose, self._say)
        running.want(pool, token)
        self._pools[pool.name] = running
        task = asyncio.get_running_loop().create_task(running.run(), name=f"pool {running.name}")
        self._tasks[running.name] = task
        task.add_done_callback(lambda done: self._ended(running, done))

    def _folder_of(self, pool: str) -> Path:
        return self._folder / "pools" / pool

    def _held(self, pools: Iterable[WantedPool]) -> dict[str, str]:
        """Pool -> the token it has, also from before this runner; empty where there is none."""
        return {
            pool.name: self._tokens.get(pool.name) or kept_token(self._folder_of(pool.name)) for pool in pools
        }

    def _ended(self, running: LocalPool, task: asyncio.Task[None]) -> None:
        """A pool is gone, unless it has been asked for again meanwhile."""
        if task.cancelled():
            return
        del self._pools[running.name], self._tasks[running.name]
        if (error := task.exception()) is not None:
            self._say(f"{running.name}: gave up, and tries again within {READ_ANYWAY_S:g} s: {error!r}")
        elif (again := running.wanted) is not None:
            self._take_one(again)

    def _forget_others(self, kept: set[str]) -> None:
        """Remove the folders of pools that went away while nobody was looking."""
        with contextlib.suppress(FileNotFoundError):
            for folder in (self._folder / "pools").iterdir():
                if folder.name not in kept:
                    shutil.rmtree(folder, ignore_errors=True)

    def _keep(self, wanted: Wanted) -> None:
        try:
            write_atomically(self._folder / LAST_WANTED, msgspec.json.encode(wanted).decode())
        except OSError as error:
            self._say(f"{error.filename}: {error.strerror}; a start without a database finds what was before")

    def _take_kept(self) -> None:
        """Begin with what was last read."""
        try:
            kept = (self._folder / LAST_WANTED).read_bytes()
            self.take(msgspec.json.decode(kept, type=Wanted))
        except (OSError, msgspec.DecodeError):
            return

    async def _tell(self, session: aiohttp.ClientSession) -> None:
        """Report everything, again and again."""
        room = asyncio.Semaphore(PROBES_AT_ONCE)

        async def look(pool: LocalPool) -> Probe:
            port = pool.metrics_port
            if port is None:
                return Probe()
            async with room:
                return await probe(session, port, with_counts=pool.is_guarded)

        while True:
            pools = list(self._pools.values())
            found = await asyncio.gather(*(look(pool) for pool in pools))
            looked = zip(pools, found, strict=True)
            reports = {pool.name: pool.report(each) for pool, each in looked if pool.wanted is not None}
            told = {
                pool.name: each.seen for pool, each in zip(pools, found, strict=True) if each.seen is not None
            }
            with contextlib.suppress(SourceError):  # told by whoever follows the database
                await self._source.report(reports, told)
                await self._observe(pools, found)
            await asyncio.sleep(REPORT_S)

    async def _observe(self, pools: Sequence[LocalPool], found: Sequence[Probe]) -> None:
        """Say what was counted under a guard; the next round says it anew."""
        for pool, each in zip(pools, found, strict=True):
            if (observation := pool.observation(each)) is not None:
                await self._source.observe(pool.name, *observation)

    async def _keep_logs_small(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            for pool in list(self._pools.values()):
                with contextlib.suppress(OSError):  # the pool is going away, or the disk is full
                    trim_folder(pool.logs, LOG_CAP_BYTES)

    def _note(self, trouble: str) -> None:
        """Say what is the matter with the database once."""
        if trouble != self._trouble:
            self._say(trouble or "the database answers again")
        self._trouble = trouble
