"""Runs the checks of a whole machine: what is configured through its API, then the way of a request."""

import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cli.local.smoke.context import Context
from cli.local.smoke.requests import protocol_counters
from cli.local.smoke.runner import CHECKS as GATEWAY_CHECKS
from cli.local.smoke.runner import client, run_check, summary
from cli.machine.machine import Machine
from cli.machine.smoke import configured, documents, outage, rollouts, usage
from cli.machine.smoke.context import Smoke
from dataplane.processes.child import Say, StartError

MARK = "smoke-run"
"""File in a folder that a smoke run has made, and may make anew."""

FIRST: tuple[Callable[[Smoke], Awaitable[str]], ...] = (
    configured.pool_from_nothing,
    rollouts.weight_changed_under_load,
    rollouts.refused_revision_stops_at_canary,
    outage.parts_killed_under_traffic,
    documents.export_changes_nothing_here_and_makes_everything_elsewhere,
    usage.every_answered_request_is_counted_once,
    configured.pool_deleted,
)
"""The pool made by the first is deleted by the last, and the examples are as they were."""


async def check_machine(machine: Machine, say: Say) -> dict[str, Any]:
    """Run all checks and return the summary: overall result, what ran, and a row per check."""
    started = time.monotonic()
    async with client() as session:
        smoke = Smoke(machine, session)
        rows = [await run_check(check, smoke, say) for check in FIRST]
        target = await smoke.target()
        context = Context(target, session)
        # A picker that starts or goes away refuses streams; from now on none does.
        context.protocol = await protocol_counters(context)
        rows += [await run_check(check, context, say) for check in GATEWAY_CHECKS]
    return summary(
        rows,
        started,
        {pool.name: pool.replicas for pool in target.pools},
        {name: child.restarts for name, child in machine.children.items()},
    )


def begin_anew(state: Path) -> None:
    """Empty the folder of an earlier smoke run. `StartError` for a folder that holds anything else."""
    if (state / MARK).exists():
        for entry in state.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name not in {MARK, "lock"}:
                entry.unlink()
    elif (state / "controlplane").exists():
        raise StartError(f"{state} holds a control plane; a smoke run begins in a folder of its own")
    (state / MARK).touch()
