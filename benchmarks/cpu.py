"""CPU time of processes and of the machine, read from /proc.

A process's time is user plus system time of all its threads. The kernel reports it in ticks (10 ms on most
machines), so a window of a few seconds is known to a fraction of a percent. The machine's own counters tell
how much of the CPU was used by processes that are no part of the measurement, which is what makes two runs
on a shared machine comparable.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class MachineTicks(NamedTuple):
    """Ticks of all CPUs together since boot."""

    busy: int
    """User, nice, system, interrupts: what this machine's own code used."""
    idle: int
    """Idle and waiting for I/O."""
    stolen: int
    """Taken by the hypervisor for somebody else."""


def parse_process_ticks(stat: str) -> int:
    """Ticks of user plus system time in the text of `/proc/PID/stat`.

    The command's name stands in parentheses and may hold spaces and parentheses itself, so fields are
    counted from the last one.
    """
    name_end = stat.rfind(")")
    fields = stat[name_end + 1 :].split()
    if name_end < 0 or len(fields) < 13:
        raise ValueError(f"not the content of /proc/PID/stat: {stat[:80]!r}")
    return int(fields[11]) + int(fields[12])


def parse_machine_ticks(stat: str) -> MachineTicks:
    """The first line of `/proc/stat`, summed up."""
    fields = stat.partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        raise ValueError(f"not the content of /proc/stat: {stat[:80]!r}")
    user, nice, system, idle, io_wait, irq, soft_irq, steal = map(int, fields[1:9])
    return MachineTicks(user + nice + system + irq + soft_irq, idle + io_wait, steal)


def process_seconds(pid: int) -> float:
    """CPU seconds the process has used. Raises `ProcessLookupError` when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(f"process {pid} is gone") from None
    return parse_process_ticks(text) / TICKS_PER_SECOND


def machine_ticks() -> MachineTicks:
    """What all CPUs have done since boot."""
    return parse_machine_ticks(Path("/proc/stat").read_text())


def resident_bytes(pid: int) -> int:
    """Memory of the process that is in RAM."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class OtherProcesses:
    """CPU used since it was made by processes other than this one and the children it has waited for."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._machine = machine_ticks().busy
        self._own = sum(os.times()[:4])

    def cores(self) -> float:
        """Average so far, in cores."""
        busy_s = (machine_ticks().busy - self._machine) / TICKS_PER_SECOND
        own_s = sum(os.times()[:4]) - self._own
        return max(0.0, busy_s - own_s) / max(time.monotonic() - self._started, 1 / TICKS_PER_SECOND)
