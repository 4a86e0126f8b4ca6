"""`pointsman sim`: flags, refusals, a running process, its reference page."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from cli.main import main
from simulator.options import SimOptions
from simulator.profile import shipped
from simulator.replica import bind
from tests.support.waiting import PATIENCE_S

PAGE = Path(__file__).parents[2] / "docs/reference/simulator.md"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SIM_MODEL", raising=False)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--max-num-seq", "3", "--model", "m"], "unknown flag --max-num-seq (did you mean"),
        ([], "model: required"),
        (["--model", "m", "--replicas", "0"], "--replicas: Expected `int` >= 1"),
        (["--model", "m", "--mode", "loud"], "--mode: Invalid enum value 'loud'"),
        (
            ["--model", "m", "--config", "absent.yaml"],
            "absent.yaml: cannot be read: No such file or directory",
        ),
        (["--model", "m", "--profile", "gpu"], "profile gpu: no such profile"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_use_exits_with_2_and_names_the_flag(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    try:
        code = main(["sim", *flags])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert message in capsys.readouterr().err


def test_every_option_is_a_flag(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["sim", "--help"])
    text = capsys.readouterr().out
    missing = [name for name in SimOptions.__struct_encode_fields__ if f"--{name}" not in text]
    assert missing == []


def test_reference_lists_exactly_the_options_and_profiles():
    def rows(section: str) -> list[str]:
        text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        return sorted(re.findall(r"^\| `([a-z0-9-]+)` \|", text, re.MULTILINE))

    assert rows("Options") == sorted(SimOptions.__struct_encode_fields__)
    assert rows("Profiles") == shipped()


@pytest.mark.integration
def test_process_serves_writes_its_endpoints_and_ends_on_sigterm(tmp_path: Path):
    endpoints = tmp_path / "endpoints.yaml"
    command = [sys.executable, "-m", "cli.main", "sim", "--model", "m", "--replicas", "2", "--port", "0"]
    command += ["--profile", "instant", "--endpoints-file", str(endpoints), "--admin-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert lines[0].startswith("2 replicas of m listen on 127.0.0.1:")
        assert lines[2] == f"endpoints: {endpoints}\n"
        for endpoint in yaml.safe_load(endpoints.read_text())["endpoints"]:
            with urlopen(f"http://{endpoint['address']}:{endpoint['port']}/health") as response:
                assert response.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.integration
def test_port_in_use_exits_with_1_and_names_it(tmp_path: Path):
    with bind("127.0.0.1", 0) as squatter:
        squatter.listen()
        port = str(squatter.getsockname()[1])
        command = [sys.executable, "-m", "cli.main", "sim", "--model", "m", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert done.stderr == (
        f"pointsman sim: error: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    )
