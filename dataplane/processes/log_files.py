"""Keeps logs of child processes from filling the disk: at the cap a file is put aside as `<name>.1`.

A child's standard output is a file opened for appending, and the child cannot be asked to open another; so
the file is copied and the original cut, which loses at most what is written between.
"""

import shutil
from pathlib import Path
from typing import Final

LOG_CAP_BYTES: Final = 64 * 1024 * 1024
CHECK_EVERY_S: Final = 10.0


def trim_folder(logs: Path, cap_bytes: int = LOG_CAP_BYTES) -> None:
    """Put aside the logs in a folder that have reached the cap. Blocks on the file system."""
    for log in logs.glob("*.log"):
        if log.stat().st_size >= cap_bytes:
            shutil.copyfile(log, aside(log))
            with log.open("r+b") as file:
                file.truncate(0)


def aside(log: Path) -> Path:
    """Return the name under which the previous part of a log is kept."""
    return log.with_name(f"{log.name}.1")
