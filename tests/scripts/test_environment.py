"""When the scripts install, and what they say when they cannot."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.architecture.tree import ROOT


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, looking at a checkout of its own whose environment is this interpreter."""
    spec = importlib.util.spec_from_file_location("environment", ROOT / "scripts/environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "ENVIRONMENT", tmp_path / ".venv")
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv/bin/python")
    return module


def test_installation_is_remembered_until_the_project_file_changes(environment: ModuleType):
    assert not environment.is_installed("local")
    environment.stamp("local").write_text(environment.digest())
    assert environment.is_installed("local")
    (environment.ROOT / "pyproject.toml").write_text("[project]\nname = 'changed'\n")
    assert not environment.is_installed("local")


def test_development_extra_covers_the_local_one_but_not_the_reverse(environment: ModuleType):
    environment.stamp("dev").write_text(environment.digest())
    assert environment.is_installed("local")
    environment.stamp("dev").unlink()
    environment.stamp("local").write_text(environment.digest())
    assert not environment.is_installed("dev")


def test_environment_without_its_interpreter_counts_as_absent(environment: ModuleType):
    environment.stamp("local").write_text(environment.digest())
    environment.PYTHON.unlink()
    environment.PYTHON.symlink_to(environment.ROOT / "removed")
    assert not environment.is_installed("local")
    assert not environment.is_usable()


def test_failed_installation_leaves_no_stamp(environment: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "PYTHON", Path("/bin/false"))
    with pytest.raises(SystemExit, match="the installation failed; the lines above say why"):
        environment.install("local")
    assert not environment.stamp("local").exists()


def test_unknown_extra_is_refused(environment: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["environment.py", "docs"])
    with pytest.raises(SystemExit, match=r"usage: environment.py {local,dev}"):
        environment.main()


@pytest.mark.parametrize("script", ["scripts/up", "scripts/test"])
def test_machine_without_a_new_python_gets_told_what_to_do(script: str, tmp_path: Path):
    for name in ("basename", "dirname"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", ROOT / script], check=False, capture_output=True, text=True, env={"PATH": str(tmp_path)}
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"{Path(script).name}: Python 3.11 or newer is needed")
    assert f"PYTHON=/path/to/python3.12 {ROOT / script}" in done.stderr


def test_checks_run_only_pytest_after_a_double_dash(tmp_path: Path):
    (tmp_path / "test_probe.py").write_text("def test_probe():\n    assert True\n")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("DJANGO_SETTINGS_MODULE", None)  # of the run this test belongs to
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/checks.py", "--", "-q", "-p", "no:cacheprovider", "test_probe.py"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert "== lint" not in done.stdout


def test_checks_refuse_arguments_without_a_double_dash():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/checks.py", "tests/cli"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "scripts/test -- ARGS" in done.stderr
