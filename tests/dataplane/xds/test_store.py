"""The last good sets on disk: whole or not at all, for the owner only, and never trusted blindly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dataplane.errors import ConfigError
from dataplane.xds.messages import Resource, Version, digest_of
from dataplane.xds.store import Store
from dataplane.xds.subscriber import Held

RESOURCES = (Resource("pool", b"\x00\xff{}"),)
HELD = {"t": Held(Version(7, digest_of(RESOURCES)), RESOURCES)}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "last-good"), "pool")


def test_what_is_saved_is_loaded_and_is_the_owners_alone(store: Store) -> None:
    assert store.load() == {}
    store.save(HELD)
    assert store.load() == HELD
    assert os.stat(store.path).st_mode & 0o777 == 0o600
    assert os.listdir(os.path.dirname(store.path)) == ["last-good"]


def test_a_missing_folder_is_made_for_the_owner_alone(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "var" / "pool" / "last-good"), "pool")
    assert store.load() == {}
    store.save(HELD)
    assert store.load() == HELD
    assert os.stat(tmp_path / "var" / "pool").st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_said_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("a file")
    with pytest.raises(NotADirectoryError):
        Store(str(tmp_path / "var" / "last-good"), "pool").save(HELD)
    assert (tmp_path / "var").read_text() == "a file"


@pytest.mark.parametrize("position", [0, 40, 64, 70, -2])
def test_one_other_byte_anywhere_makes_it_none(store: Store, position: int) -> None:
    store.save(HELD)
    data = bytearray(Path(store.path).read_bytes())
    data[position] ^= 1
    Path(store.path).write_bytes(data)
    with pytest.raises(ConfigError, match=r"last-good: is damaged: its digest is another"):
        store.load()


def test_a_set_that_was_being_put_into_use_is_known_to_the_next_process_once(store: Store) -> None:
    version = HELD["t"].version
    assert store.unfinished() is None
    store.begin("t", version)
    store.end()
    assert store.unfinished() is None
    store.begin("t", version)
    assert store.load() == {}
    again = Store(store.path, "pool")
    assert again.unfinished() == ("t", version.digest)
    assert again.unfinished() is None


@pytest.mark.parametrize("damage", [b"", b"t", b"a b c", b"\xff", b"x" * 5000])
def test_a_note_that_says_nothing_is_none(store: Store, damage: bytes) -> None:
    Path(store.path + ".trying").write_bytes(damage)
    assert store.unfinished() is None


def test_half_a_file_a_folder_and_another_pools_file_are_none(store: Store) -> None:
    store.save(HELD)
    with pytest.raises(ConfigError, match="is of the pool pool, not other"):
        Store(store.path, "other").load()
    Path(store.path).write_bytes(Path(store.path).read_bytes()[:-9])
    with pytest.raises(ConfigError, match="is damaged"):
        store.load()
    os.unlink(store.path)
    os.mkdir(store.path)
    with pytest.raises(ConfigError, match="is not a regular file"):
        store.load()


def test_resources_that_are_not_those_of_their_version_are_none(store: Store) -> None:
    store.save({"t": Held(Version(7, "0" * 32), RESOURCES)})
    with pytest.raises(ConfigError, match="resources that are not those of their version"):
        store.load()


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(HELD)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.save({})
    assert store.load() == HELD
    assert os.listdir(os.path.dirname(store.path)) == ["last-good"]
