"""A folder is one run's at a time."""

import os
from pathlib import Path

import pytest

from dataplane.processes.child import StartError
from dataplane.processes.folder import locked


def test_second_run_in_the_same_folder_is_refused_with_the_owner(tmp_path: Path):
    state = tmp_path / "state"
    with locked(state), pytest.raises(StartError) as raised, locked(state):
        pass
    assert str(raised.value) == (
        f"another run (process {os.getpid()}) uses {state}; stop it, or use another folder with --state-dir"
    )


def test_folder_is_free_again_after_a_run(tmp_path: Path):
    with locked(tmp_path):
        pass
    with locked(tmp_path):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(StartError, match="cannot be used: Not a directory; name another with --state-dir"),
        locked(tmp_path / "file/state"),
    ):
        pass
