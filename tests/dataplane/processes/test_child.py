"""Supervision, with real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dataplane.processes import child as child_module
from dataplane.processes.child import Child, StartError
from tests.support.waiting import until

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch):
    """No test waits for a real back-off."""
    monkeypatch.setattr(child_module, "BACKOFF_FIRST_S", 0.01)
    monkeypatch.setattr(child_module, "STOP_GRACE_S", 0.3)


async def test_output_goes_to_the_log_of_the_child(tmp_path: Path):
    child = Child("part", SLEEPER, tmp_path, print)
    await child.start()
    await until(lambda: child.tail() == "up")
    assert (tmp_path / "part.log").read_text() == "up\n"
    await child.stop()


async def test_dead_child_is_started_again_and_that_is_said(tmp_path: Path):
    said: list[str] = []
    child = Child("part", SLEEPER, tmp_path, said.append)
    await child.start()
    child.is_ready = True
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: child.restarts == 1 and child.pid not in {None, first})
    assert said == [f"part was killed by SIGKILL; starting it again in 0.01 s (log: {tmp_path / 'part.log'})"]
    await child.stop()


async def test_delay_doubles_while_the_child_keeps_dying(tmp_path: Path):
    said: list[str] = []
    child = Child("part", [sys.executable, "-c", "raise SystemExit(3)"], tmp_path, said.append)
    child.is_ready = True
    await child.start()
    await until(lambda: child.restarts == 3)
    await child.stop()
    delays = [line.partition(" again in ")[2].partition(" s ")[0] for line in said]
    assert delays[:3] == ["0.01", "0.02", "0.04"]
    assert said[0].startswith("part ended with exit code 3;")


async def test_death_before_readiness_is_a_failed_start_with_the_end_of_the_log(tmp_path: Path):
    code = "print('bad flag --x'); raise SystemExit(2)"
    child = Child("part", [sys.executable, "-c", code], tmp_path, print)
    await child.start()
    error = await child.failed
    assert str(error) == (
        f"part ended with exit code 2 while starting; the end of {tmp_path / 'part.log'}:\nbad flag --x"
    )
    assert (child.restarts, child.pid) == (0, None)
    await child.stop()


async def test_command_that_cannot_be_run_is_a_failed_start(tmp_path: Path):
    child = Child("part", [tmp_path / "absent"], tmp_path, print)
    with pytest.raises(StartError, match=r"part: cannot run .*absent: No such file or directory"):
        await child.start()
    await child.stop()


async def test_stop_ends_the_whole_group_and_starts_nothing_again(tmp_path: Path):
    shell = ["/bin/sh", "-c", "sleep 600 & echo $!; wait"]
    child = Child("part", shell, tmp_path, print)
    await child.start()
    child.is_ready = True
    await until(lambda: child.tail().isdigit())
    grandchild = int(child.tail())
    await child.stop()
    await child.stop()
    await until(lambda: not is_running(grandchild))
    assert (child.pid, child.restarts) == (None, 0)


async def test_child_that_ignores_sigterm_is_killed(tmp_path: Path):
    said: list[str] = []
    code = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER[-1]}"
    child = Child("part", [sys.executable, "-c", code], tmp_path, said.append)
    await child.start()
    await until(lambda: child.tail() == "up")
    pid = child.pid
    assert pid is not None
    await child.stop()
    assert said == ["part ignores SIGTERM; killing it"]
    assert not is_running(pid)


def test_child_dies_with_a_killed_parent(tmp_path: Path):
    code = f"""
import asyncio, pathlib, sys
from dataplane.processes.child import Child
async def main():
    child = Child("part", {SLEEPER!r}, pathlib.Path({str(tmp_path)!r}), print)
    await child.start()
    print(child.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    asyncio.run(until(lambda: not is_running(pid)))


def is_running(pid: int) -> bool:
    """Tell whether a process exists and is no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
