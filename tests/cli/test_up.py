"""`pointsman up` before anything runs: what it refuses, and how."""

import socket
from pathlib import Path

import pytest

from cli.main import main
from dataplane.processes.folder import locked

POOLS = "pools: [{name: a, models: [m]}]\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "local.yaml"
    path.write_text(POOLS)
    return path


def test_mistake_in_the_file_is_told_with_file_and_place(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config.write_text("pools: [{name: a, models: [m], piker: {}}]")
    assert main(["up", "--config", str(config), "--state-dir", str(tmp_path / "state")]) == 2
    captured = capsys.readouterr()
    assert captured.err == (
        f'pointsman up: error: {config}: pools[0].piker: unknown field (did you mean "picker"?)\n'
    )
    assert captured.out == ""


def test_public_port_in_use_is_refused(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        arguments = [
            "up",
            "--config",
            str(config),
            "--state-dir",
            str(tmp_path / "state"),
            "--port",
            str(port),
        ]
        assert main(arguments) == 2
    assert (
        f"gateway.port: port {port} is in use; configure another, or 0 for a free one "
        "(--port 0 does it for one run)" in capsys.readouterr().err
    )


def test_state_folder_of_another_run_is_refused(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with locked(tmp_path / "state"):
        assert main(["up", "--config", str(config), "--state-dir", str(tmp_path / "state")]) == 1
    assert "pointsman up: error: another run (process " in capsys.readouterr().err


@pytest.mark.parametrize("value", ["-1", "65536", "http"])
def test_impossible_port_is_refused(value: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit_:
        main(["up", f"--port={value}"])
    assert exit_.value.code == 2
    assert "argument --port" in capsys.readouterr().err
