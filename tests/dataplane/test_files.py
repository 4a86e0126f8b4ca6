"""Files an operator named: regular ones are read, anything else is refused at once."""

import os
from pathlib import Path

import pytest

from dataplane.errors import ConfigError
from dataplane.files import FileSignature, read_regular_file


def test_a_file_up_to_the_cap_is_read_whole(tmp_path: Path):
    file = tmp_path / "f"
    file.write_bytes(b"12345")
    assert read_regular_file(str(file), 5, path="--config-file") == b"12345"
    with pytest.raises(ConfigError, match=r"^--config-file: is larger than 4 bytes$"):
        read_regular_file(str(file), 4, path="--config-file")


def test_a_symbolic_link_to_a_file_is_followed(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "l").symlink_to(tmp_path / "f")
    assert read_regular_file(str(tmp_path / "l"), 5, path="p") == b"x"


def test_a_fifo_does_not_block(tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(ConfigError, match=r"^p: is not a regular file$"):
        read_regular_file(str(fifo), 5, path="p")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("nowhere", "No such file or directory"), (".", "is not a regular file"), ("a\0b", "null byte")],
)
def test_what_cannot_be_read_is_said_with_the_place(tmp_path: Path, name: str, reason: str):
    with pytest.raises(ConfigError, match=reason) as caught:
        read_regular_file(str(tmp_path / name), 5, path="parameters.path")
    assert caught.value.path == "parameters.path"


def test_another_content_of_the_same_size_and_time_is_another_state(tmp_path: Path):
    file = tmp_path / "f"
    file.write_bytes(b"priority: 1")
    os.utime(file, ns=(1, 1))
    before = FileSignature.of(str(file))
    assert FileSignature.of(str(file)) == before
    file.write_bytes(b"priority: 2")
    os.utime(file, ns=(1, 1))
    assert FileSignature.of(str(file)) != before


def test_a_file_that_may_be_read_now_is_in_another_state(tmp_path: Path):
    file = tmp_path / "f"
    file.touch(mode=0o000)
    before = FileSignature.of(str(file))
    file.chmod(0o600)
    assert FileSignature.of(str(file)) != before
