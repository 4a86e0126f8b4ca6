"""`pointsman up` for real: a whole gateway is started, tried and stopped."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.local.smoke.runner import CHECKS
from tests.architecture.tree import ROOT

pytestmark = pytest.mark.integration

SMALL = """
pools:
  - name: only
    models: [tiny]
    simulator: {replicas: 2, profile: instant}
"""

LOCAL = str(ROOT / "deploy/local.yaml")
UP = [sys.executable, "-m", "cli.main", "up"]


def gateway_url(lines: list[str]) -> str:
    """The address that was printed."""
    found = re.search(r"^gateway: (http://\S+)$", "".join(lines), re.MULTILINE)
    assert found is not None
    return found[1]


def ask(url: str) -> tuple[int, dict[str, dict[str, object]]]:
    """Status and JSON of one chat completion."""
    body = json.dumps({"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "?"}]})
    request = urllib.request.Request(f"{url}/v1/chat/completions", body.encode())
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@contextlib.contextmanager
def running(tmp_path: Path, config: str = SMALL) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A small gateway that is ready, and the lines it has said."""
    (tmp_path / "local.yaml").write_text(config)
    command = [*UP, "--config", str(tmp_path / "local.yaml"), "--state-dir", str(tmp_path / "state")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        lines: list[str] = []
        try:
            for line in process.stdout:
                lines.append(line)
                if line.startswith("Ctrl-C stops everything"):
                    break
            yield process, lines
        finally:
            process.kill()


def family(parent: int) -> dict[int, str]:
    """Processes below `parent` with their commands; one that ends meanwhile has none and is left out."""
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(folder.name)
            status = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text().replace("\0", " ").strip()
            if int(status[1]) == parent and status[0] != "Z" and command:
                found[pid] = command
    return found


def exists(pid: int) -> bool:
    """Tell whether a process is alive."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_end(pids: dict[int, str]) -> None:
    """Wait until none of the processes is alive; the test's timeout is the limit."""
    while any(map(exists, pids)):
        time.sleep(0.02)


def test_smoke_run_of_a_file_passes_and_prints_one_json_summary(tmp_path: Path):
    command = [*UP, "--config", LOCAL, "--smoke", "--state-dir", str(tmp_path / "state")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["result"], summary["failed"]) == ("passed", [])
    assert [check["name"] for check in summary["checks"]] == [check.__name__ for check in CHECKS]
    assert summary["pools"] == {"llama-8b": 4, "qwen-32b": 3}
    assert summary["restarts"] == {
        "sim-llama-8b": 0,
        "sim-qwen-32b": 0,
        "epp-llama-8b": 1,
        "epp-qwen-32b": 0,
        "envoy": 0,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
def test_one_signal_stops_everything(tmp_path: Path, number: signal.Signals):
    with running(tmp_path) as (process, lines):
        children = family(process.pid)
        assert len(children) == 3
        with urllib.request.urlopen(f"{gateway_url(lines)}/v1/models") as answer:
            assert [model["id"] for model in json.load(answer)["data"]] == ["tiny"]
        process.send_signal(number)
        assert process.wait() == 0
        assert {pid: command for pid, command in children.items() if exists(pid)} == {}


def test_nothing_survives_when_the_command_is_killed(tmp_path: Path):
    with running(tmp_path) as (process, _):
        children = family(process.pid)
        assert len(children) == 3
        process.kill()
        process.wait()
        await_end(children)


def test_part_that_cannot_start_fails_the_run_with_the_end_of_its_log(tmp_path: Path):
    (tmp_path / "local.yaml").write_text(SMALL.replace("profile: instant", "profile: no-such-profile"))
    command = [*UP, "--config", str(tmp_path / "local.yaml"), "--state-dir", str(tmp_path / "state")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "pointsman up: error: sim-only ended with exit code 2 while starting" in done.stderr
    assert "no-such-profile" in done.stderr


def test_pool_that_fails_closed_refuses_in_json_until_its_picker_is_back(tmp_path: Path):
    with running(tmp_path, SMALL.replace("models:", "failureMode: FailClose\n    models:")) as (
        process,
        lines,
    ):
        url = gateway_url(lines)
        assert ask(url)[0] == 200
        (picker,) = (pid for pid, command in family(process.pid).items() if " epp " in command)
        os.kill(picker, signal.SIGKILL)
        while (refusal := ask(url))[0] == 200:
            pass
        assert refusal[0] == 503
        assert refusal[1]["error"]["type"] == "server_error"
        while ask(url)[0] != 200:
            time.sleep(0.02)


def test_killed_part_is_started_again(tmp_path: Path):
    with running(tmp_path) as (process, _):
        assert process.stdout is not None
        (envoy,) = (pid for pid, command in family(process.pid).items() if "envoy" in command.split()[0])
        os.kill(envoy, signal.SIGKILL)
        said = next(line for line in process.stdout if "envoy was killed" in line)
        assert "envoy was killed by SIGKILL; starting it again in 0.25 s" in said
        while not any(
            "envoy" in command.split()[0] for pid, command in family(process.pid).items() if pid != envoy
        ):
            time.sleep(0.02)
