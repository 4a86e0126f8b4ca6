"""The profile of the control plane on this machine: who may be told of it, and what it is used for."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from cli import profile
from cli.documents import DEFAULT_URL, RefusedError, asked_control_plane, request_of
from cli.profile import Profile, UnusableError

HERE = Profile("http://127.0.0.1:8800", "pmt_here")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the profile is looked for; nothing else is said in the environment."""
    path = tmp_path / "profile.json"
    monkeypatch.setenv(profile.VARIABLE, str(path))
    monkeypatch.delenv("POINTSMAN_URL", raising=False)
    monkeypatch.delenv("POINTSMAN_TOKEN", raising=False)
    return path


def test_what_is_written_is_read_and_nobody_else_may_read_it(kept: Path):
    profile.write(kept, Profile("http://127.0.0.1:1", "pmt_old"))
    profile.write(kept, HERE)
    assert profile.read() == HERE
    assert kept.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in kept.parent.iterdir()] == ["profile.json"]


def test_without_a_file_there_is_no_profile(kept: Path):
    assert profile.read() is None
    assert asked_control_plane(None) == (DEFAULT_URL, "")


def test_a_file_that_others_may_read_is_not_used(kept: Path):
    profile.write(kept, HERE)
    kept.chmod(0o640)
    with pytest.raises(UnusableError, match=r"others may read it; chmod 600 "):
        profile.read()
    with pytest.raises(RefusedError, match="chmod 600"):
        request_of(argparse.Namespace(url=None), "GET", "pools")


@pytest.mark.parametrize("text", ["", "[]", '{"url": "http://127.0.0.1:1"}'])
def test_a_damaged_file_is_told(kept: Path, text: str):
    profile.write(kept, HERE)
    kept.write_text(text)
    with pytest.raises(UnusableError, match="is no profile; delete it"):
        profile.read()


@pytest.mark.parametrize(
    ("said", "variables", "asked"),
    [
        (None, {}, HERE),
        ("http://127.0.0.1:8800/", {}, HERE),
        ("http://elsewhere:1", {}, ("http://elsewhere:1", "")),
        (None, {"POINTSMAN_URL": "http://elsewhere:1"}, ("http://elsewhere:1", "")),
        (None, {"POINTSMAN_TOKEN": "pmt_mine"}, (HERE.url, "pmt_mine")),
        (
            "http://elsewhere:1",
            {"POINTSMAN_TOKEN": "pmt_mine", "POINTSMAN_URL": "http://other:1"},
            ("http://elsewhere:1", "pmt_mine"),
        ),
    ],
)
def test_the_token_goes_to_its_own_control_plane_alone(
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str | None,
    variables: dict[str, str],
    asked: tuple[str, str],
):
    profile.write(kept, HERE)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert asked_control_plane(said) == asked
