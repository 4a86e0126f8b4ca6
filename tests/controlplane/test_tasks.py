"""The process of tasks: it starts, outlives its broker, and ends in order."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.controlplane_command import Command
from tests.support.valkey import ValkeyServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]


def wait_for(log: Path, mark: str, times: int = 1) -> None:
    for _ in range(300):
        if log.read_text().count(mark) >= times:
            return
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_without_valkey_it_says_what_is_missing(tmp_path: Path) -> None:
    command = Command(tmp_path)
    command.environment.pop("VALKEY_URL", None)
    done = command.run("controlplane", "run-tasks")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "pointsman controlplane run-tasks: error: VALKEY_URL: is not set; "
        "name a Valkey server, such as redis://127.0.0.1:6379/0\n"
    )


def test_it_outlives_its_broker_and_ends_on_sigterm(tmp_path: Path, mortal_valkey: ValkeyServer) -> None:
    command = Command(tmp_path)
    command.environment["VALKEY_URL"] = mortal_valkey.url
    log = tmp_path / "tasks.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "controlplane", "run-tasks"],
            env=command.environment,
            stdout=output,
            stderr=output,
        )
    try:
        wait_for(log, " ready.")
        mortal_valkey.kill()
        wait_for(log, "Cannot connect")
        mortal_valkey.start()
        wait_for(log, "Connected to", 2)
        process.terminate()
        assert process.wait(20) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
