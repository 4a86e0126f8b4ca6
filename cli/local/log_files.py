"""Keeps the log files of a long run from filling the disk: at the cap a file is put aside as `<name>.1`.

Envoy reopens its access log when asked. The other files are the standard output of child processes
(`dataplane.processes.log_files`).
"""

import asyncio
import contextlib

import aiohttp

from cli.local.plan import Plan
from dataplane.processes.log_files import CHECK_EVERY_S, LOG_CAP_BYTES, aside, trim_folder
from dataplane.processes.ports import LOOPBACK


async def keep_small(plan: Plan, session: aiohttp.ClientSession, cap_bytes: int = LOG_CAP_BYTES) -> None:
    """Check all log files for ever."""
    while True:
        await asyncio.sleep(CHECK_EVERY_S)
        await trim(plan, session, cap_bytes)


async def trim(plan: Plan, session: aiohttp.ClientSession, cap_bytes: int) -> None:
    """Put aside the files that have reached the cap."""
    trim_folder(plan.logs, cap_bytes)
    if plan.access_log.exists() and plan.access_log.stat().st_size >= cap_bytes:
        plan.access_log.replace(aside(plan.access_log))
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):  # Envoy is down: it will open a new file
            async with session.post(f"http://{LOOPBACK}:{plan.admin_port}/reopen_logs"):
                pass
