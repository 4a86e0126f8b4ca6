"""Has the database set up by a process of its own (`cli.machine.setup`), which also sees to a token."""

import asyncio
import sys

import msgspec

from cli.machine import setup
from cli.machine.layout import Layout
from dataplane.processes.child import StartError

LOG_TAIL = 2000
"""Characters."""


class Found(msgspec.Struct, frozen=True):
    """What there is now."""

    administrator: str
    """Whose the token is."""
    password: str | None
    """Of the administrator, when the database is fresh."""
    token: str
    worker_token: str
    """For the Envoy of this run."""
    processor_token: str
    """For its payload processor."""


async def set_up(layout: Layout, token: str) -> Found:
    """Bring the database up to date; ``token`` is that of the last time. `StartError` when it cannot be."""
    log = layout.logs / "setup.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", setup.__name__, str(layout.seeds)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=layout.environment(),
        )
    try:
        said, _ = await process.communicate(token.encode())
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        text = log.read_text(errors="replace")[-LOG_TAIL:]
        raise StartError(f"the database cannot be set up; the end of {log}:\n{text}")
    return msgspec.json.decode(said, type=Found)
