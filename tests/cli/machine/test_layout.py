"""Folders, ports and environment of a whole machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.machine import valkey
from cli.machine.layout import Layout, make_layout
from dataplane.errors import ConfigError


def numbered(configured: int, path: str, address: str = "", hint: str = "") -> int:
    """Ports by what they are for."""
    return configured or {"--web-port": 1, "xds": 2, "valkey": 3, "xds-metrics": 4}[path]


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.delenv("VALKEY_URL", raising=False)
    return make_layout(tmp_path, 8800, numbered)


def test_addresses_are_on_loopback_and_valkey_has_a_password(layout: Layout):
    assert (layout.web, layout.xds) == ("http://127.0.0.1:8800", "127.0.0.1:2")
    assert layout.xds_pages == "http://127.0.0.1:4"
    assert layout.valkey == f"redis://:{layout.valkey_password}@127.0.0.1:3/0"
    assert len(layout.valkey_password) == 32


def test_processes_get_their_places_and_nothing_that_is_said_to_commands(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("POINTSMAN_TOKEN", "pmt_secret")
    monkeypatch.setenv("POINTSMAN_HOSTS", "pointsman.example")
    monkeypatch.setenv("DATABASE_URL", "postgres://somewhere/else")
    found = layout.environment()
    assert found["POINTSMAN_STATE"] == str(tmp_path / "controlplane")
    assert found["VALKEY_URL"] == layout.valkey
    assert found["DATABASE_URL"] == "postgres://somewhere/else"
    assert not {"POINTSMAN_TOKEN", "POINTSMAN_HOSTS"} & found.keys()


def test_servers_of_others_are_used_unless_the_run_is_to_leave_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("VALKEY_URL", "redis://elsewhere:6379/1")
    monkeypatch.setenv("DATABASE_URL", "postgres://somewhere/else")
    assert make_layout(tmp_path, 0, numbered).valkey == "redis://elsewhere:6379/1"
    alone = make_layout(tmp_path, 0, numbered, is_alone=True)
    assert alone.valkey == f"redis://:{alone.valkey_password}@127.0.0.1:3/0"
    assert "DATABASE_URL" not in alone.environment()


def test_valkey_s_password_is_in_a_file_for_its_owner_and_not_on_the_command_line(layout: Layout):
    words = valkey.command(layout)
    words = valkey.command(layout)  # a second start replaces what the first has written
    assert layout.valkey_password not in " ".join(map(str, words))
    file = Path(words[-1])
    assert file.stat().st_mode & 0o777 == 0o600
    assert dict(line.split(" ", 1) for line in file.read_text().splitlines()) == {
        "bind": "127.0.0.1",
        "port": "3",
        "requirepass": layout.valkey_password,
        "dir": f'"{layout.valkey_folder}"',
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": '""',
        "maxmemory": "256mb",
        "maxmemory-policy": "noeviction",
    }


def test_a_database_that_cannot_be_meant_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("VALKEY_URL", raising=False)
    monkeypatch.setenv("DATABASE_URL", "mysql://somewhere/else")
    with pytest.raises(ConfigError, match="DATABASE_URL: is no address of a database"):
        make_layout(tmp_path, 0, numbered)
    assert make_layout(tmp_path, 0, numbered, is_alone=True).xds == "127.0.0.1:2"
