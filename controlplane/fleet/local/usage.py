"""What a process has used, from Linux's ``/proc``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Usage(NamedTuple):
    """Since the process started, and now."""

    cpu_s: float
    """User and system time in seconds."""
    memory_bytes: int
    """Resident."""


def usage_of(pid: int) -> Usage | None:
    """None when there is no such process any more."""
    try:
        # The command's name stands in parentheses and may hold blanks; what follows it does not.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    ticks = int(fields[11]) + int(fields[12])
    pages = int(fields[21])
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"))
