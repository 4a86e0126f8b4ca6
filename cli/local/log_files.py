"""Keeps the log files of a long run from filling the disk: at the cap a file is put aside as `<name>.1`.

Envoy reopens its access log when asked. The other files are the standard output of child processes, which
cannot be asked; they are opened for appending, so copying one and cutting the original loses at most what
is written between.
"""

import asyncio
import contextlib
import shutil
from pathlib import Path
from typing import Final

import aiohttp

from cli.local.plan import LOOPBACK, Plan

LOG_CAP_BYTES: Final = 64 * 1024 * 1024
CHECK_EVERY_S: Final = 10.0


async def keep_small(plan: Plan, session: aiohttp.ClientSession, cap_bytes: int = LOG_CAP_BYTES) -> None:
    """Check all log files for ever."""
    while True:
        await asyncio.sleep(CHECK_EVERY_S)
        await trim(plan, session, cap_bytes)


async def trim(plan: Plan, session: aiohttp.ClientSession, cap_bytes: int) -> None:
    """Put aside the files that have reached the cap."""
    for log in plan.logs.glob("*.log"):
        if log.stat().st_size >= cap_bytes:
            shutil.copyfile(log, aside(log))
            with log.open("r+b") as file:
                file.truncate(0)
    if plan.access_log.exists() and plan.access_log.stat().st_size >= cap_bytes:
        plan.access_log.replace(aside(plan.access_log))
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):  # Envoy is down: it will open a new file
            async with session.post(f"http://{LOOPBACK}:{plan.admin_port}/reopen_logs"):
                pass


def aside(log: Path) -> Path:
    """Return the name under which the previous part of a log is kept."""
    return log.with_name(f"{log.name}.1")
