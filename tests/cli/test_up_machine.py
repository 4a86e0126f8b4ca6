"""`pointsman up` with its control plane, for real: everything is started, tried, and stopped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.local.smoke.runner import CHECKS
from cli.machine.smoke.runner import FIRST
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, "-m", "cli.main"]
PARTS = ["valkey", "web", "xds", "tasks", "fleet", "ipp", "gateway"]


def environment(state: Path) -> dict[str, str]:
    """Ours, with the profile of this installation."""
    dropped = ("POINTSMAN_", "DATABASE_URL", "VALKEY_URL", "DJANGO_SETTINGS_MODULE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"POINTSMAN_PROFILE": str(state / "profile.json")}


class Up:
    """A running installation and what it has said."""

    def __init__(self, state: Path, process: subprocess.Popen[str]) -> None:
        self.state = state
        self.process = process
        self.text = ""

    def until(self, mark: str) -> str:
        """What it says up to the line that begins so."""
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            self.text += line
            if line.startswith(mark):
                return said
        raise AssertionError(self.text)

    def says(self, *arguments: str) -> str:
        """What a command on this machine says."""
        command = [*COMMAND, *arguments]
        return subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            env=environment(self.state),
            timeout=PATIENCE_S,
        ).stdout


@contextlib.contextmanager
def running(state: Path, **variables: str) -> Iterator[Up]:
    env = environment(state) | variables
    command = [*COMMAND, "up", "--port", "0", "--web-port", "0", "--state-dir", str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield Up(state, process)
        finally:
            process.kill()


def descendants(parent: int) -> set[int]:
    """Processes below one, and those below them."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            status = (folder / "stat").read_text().rpartition(")")[2].split()
            if status[0] != "Z":
                children.setdefault(int(status[1]), []).append(int(folder.name))
    found, waiting = set(), [parent]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


def exists(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_everything_is_configured_through_the_api_and_survives_what_is_killed(tmp_path: Path):
    command = [*COMMAND, "up", "--smoke", "--state-dir", str(tmp_path / "state")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["result"], summary["failed"]) == ("passed", [])
    names = [check.__name__ for check in (*FIRST, *CHECKS)]
    assert [check["name"] for check in summary["checks"]] == names
    assert summary["pools"] == {"llama-8b": 4, "qwen-32b": 3}
    assert list(summary["restarts"]) == PARTS
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_the_first_start_shows_secrets_once_and_a_later_one_keeps_what_people_changed(tmp_path: Path):
    state = tmp_path / "state"
    with running(state) as up:
        said = up.until("Ctrl-C stops everything")
        password = re.search(
            r"administrator admin, with this password, which is shown once: (\S+)$", said, re.MULTILINE
        )
        keys = re.findall(r"^  (\S+): sk-pm-\S+$", said, re.MULTILINE)
        assert password is not None
        assert keys == ["notebook", "nightly-eval"]
        assert (state / "profile.json").stat().st_mode & 0o777 == 0o600
        tenant = up.says("get", "tenants", "research").replace("Research", "Everybody")
        (tmp_path / "tenant.yaml").write_text(tenant)
        assert up.says("apply", str(tmp_path / "tenant.yaml")).startswith("~ Tenant research: update\n")
        below = descendants(up.process.pid)
        assert len(below) >= len(PARTS)
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait() == 0
        assert [pid for pid in below if exists(pid)] == []
    kept = [path for path in state.rglob("*") if path.is_file() and password[1].encode() in path.read_bytes()]
    assert kept == []
    with running(state) as up:
        said = up.until("Ctrl-C stops everything")
        assert "shown once" not in said
        assert "sk-pm-" not in said
        assert "displayName: Everybody" in up.says("get", "tenants", "research")
        gateway = re.search(r"^gateway: (\S+)$", said, re.MULTILINE)
        assert gateway is not None
        with urllib.request.urlopen(f"{gateway[1]}/v1/models") as answer:
            models = [model["id"] for model in json.load(answer)["data"]]
        assert sorted(models) == ["chat", "llama-8b", "qwen-32b"]
        below = descendants(up.process.pid)
        up.process.kill()
        up.process.wait()
        while any(map(exists, below)):  # the test's timeout is the limit
            time.sleep(0.05)
