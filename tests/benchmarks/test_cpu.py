"""What is read from /proc."""

import os
import subprocess
import sys

import pytest

from benchmarks import cpu
from benchmarks.cpu import (
    TICKS_PER_SECOND,
    MachineTicks,
    OtherProcesses,
    machine_ticks,
    parse_machine_ticks,
    parse_process_ticks,
    process_seconds,
    resident_bytes,
)

TAIL = " S 1 2 3 4 5 6 7 8 9 10 1200 34 0 0 20 0 3 0 100 1000 200 18446744073709551615"


@pytest.mark.parametrize("name", ["python3", "a b", "odd) name (", ""])
def test_process_ticks_are_user_and_system_time_whatever_the_name(name: str):
    assert parse_process_ticks(f"4711 ({name}){TAIL}") == 1234


@pytest.mark.parametrize("text", ["", "4711", "4711 (a) S 1 2 3", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"])
def test_other_text_is_no_process_stat(text: str):
    with pytest.raises(ValueError, match="not the content of /proc/PID/stat"):
        parse_process_ticks(text)


def test_machine_ticks_are_busy_idle_and_stolen():
    stat = "cpu  10 2 30 400 5 6 7 8 0 0\ncpu0 5 1 15 200 2 3 3 4 0 0\n"
    assert parse_machine_ticks(stat) == MachineTicks(busy=55, idle=405, stolen=8)


@pytest.mark.parametrize("text", ["", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3"])
def test_other_text_is_no_machine_stat(text: str):
    with pytest.raises(ValueError, match="not the content of /proc/stat"):
        parse_machine_ticks(text)


def test_own_process_and_machine_can_be_read():
    assert process_seconds(os.getpid()) > 0
    assert resident_bytes(os.getpid()) > 1_000_000
    assert machine_ticks().busy > 0


def test_process_that_is_gone_is_said_to_be_gone():
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    with pytest.raises(ProcessLookupError, match=f"process {ended.pid} is gone"):
        process_seconds(ended.pid)


def test_cpu_of_others_is_what_the_machine_used_beyond_this_process_and_its_children(monkeypatch):
    busy_s = iter((10.0, 13.0))
    own = iter(((1.0, 0.5, 0.0, 0.0, 0.0), (1.5, 0.5, 0.25, 0.75, 0.0)))
    now = iter((100.0, 102.0))
    monkeypatch.setattr(
        cpu, "machine_ticks", lambda: MachineTicks(int(next(busy_s) * TICKS_PER_SECOND), 0, 0)
    )
    monkeypatch.setattr(cpu.os, "times", lambda: next(own))
    monkeypatch.setattr(cpu.time, "monotonic", lambda: next(now))
    others = OtherProcesses()
    assert others.cores() == pytest.approx((3.0 - 1.5) / 2)
