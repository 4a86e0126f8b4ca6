"""A smoke run's folder: its own, or nobody's."""

from pathlib import Path

import pytest

from cli.machine.smoke.runner import begin_anew
from dataplane.processes.child import StartError


def test_a_folder_with_somebody_s_control_plane_is_refused_and_kept(tmp_path: Path):
    database = tmp_path / "controlplane" / "database.sqlite3"
    database.parent.mkdir()
    database.write_text("precious")
    with pytest.raises(StartError, match="holds a control plane"):
        begin_anew(tmp_path)
    assert database.read_text() == "precious"


def test_the_folder_of_the_last_smoke_run_is_emptied(tmp_path: Path):
    begin_anew(tmp_path)
    (tmp_path / "controlplane").mkdir()
    (tmp_path / "profile.json").touch()
    (tmp_path / "lock").touch()
    begin_anew(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "smoke-run"]
