"""The folder a run keeps its files in, and the lock that gives it to one run at a time."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml

from cli.local.child import StartError
from cli.local.plan import Plan


@contextlib.contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold the folder while the block runs. Raises `StartError` when another run has it."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        lock = (state / "lock").open("a+")
    except OSError as error:
        raise StartError(f"{state} cannot be used: {error.strerror}; name another with --state-dir") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            raise StartError(
                f"another run (process {owner}) uses {state}; stop it, or use another folder with --state-dir"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def prepare(plan: Plan) -> None:
    """Put the last run's logs aside, remove its endpoints, write the pickers' configurations and objects."""
    previous = plan.logs.with_name("logs.previous")
    if plan.logs.exists():
        shutil.rmtree(previous, ignore_errors=True)
        plan.logs.replace(previous)
    plan.logs.mkdir(parents=True)
    for pool in plan.pools:
        pool.folder.mkdir(parents=True, exist_ok=True)
        pool.endpoints_file.unlink(missing_ok=True)
        pool.picker_file.write_text(yaml.safe_dump(dict(pool.picker_config), sort_keys=False))
        pool.objects_file.write_text(yaml.safe_dump_all(map(dict, pool.objects), sort_keys=False))
