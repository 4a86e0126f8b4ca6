"""The folder a run keeps its files in: the lock that gives it to one run at a time; files replaced whole."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from dataplane.processes.child import StartError


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


def write_atomically(path: Path, text: str | bytes) -> None:
    """Replace a file in one step, creating its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f"{path.suffix}.new")
    draft.write_bytes(text.encode() if isinstance(text, str) else text)
    draft.replace(path)
