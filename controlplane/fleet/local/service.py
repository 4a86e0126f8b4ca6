"""The runner as a process: its folder, its signals, its words."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from controlplane.fleet.local.access import ControlPlane
from controlplane.fleet.local.database import Database
from controlplane.fleet.local.leftovers import follow
from controlplane.fleet.local.runner import FleetRunner
from dataplane.processes.folder import locked


def run_until_signal(folder: Path, control_plane: ControlPlane) -> None:
    """Run all local pools until SIGTERM or SIGINT.

    ``StartError`` when another runner has the folder, ``ConfigError`` when no picker could start so.
    """
    control_plane.check()
    with locked(folder):
        asyncio.run(_serve(folder, control_plane))


async def _serve(folder: Path, control_plane: ControlPlane) -> None:
    work = asyncio.create_task(FleetRunner(Database(), folder, control_plane, say).run())
    leftovers = asyncio.create_task(follow(folder))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, work.cancel)
    say(f"running local pools, with files in {folder}")
    with contextlib.suppress(asyncio.CancelledError):
        await work
    leftovers.cancel()
    await asyncio.gather(leftovers, return_exceptions=True)
    say("everything is stopped")


def say(text: str) -> None:
    """One line for whoever reads the process's output."""
    sys.stdout.write(f"fleet: {text}\n")
    sys.stdout.flush()
