"""Reading and watching a file an operator named, without trusting what is at its path; and files of secrets.

Only regular files are read, and only up to a cap: a FIFO, a device or a socket at that path would block the
process or never end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from dataplane.errors import ConfigError

OWNER_ONLY: Final = stat.S_IRUSR | stat.S_IWUSR


class FileSignature(NamedTuple):
    """What tells two states of a file apart; all zero when there is no file.

    The path is resolved, so that an atomic rename is seen as well as the symlink swap by which Kubernetes
    updates a mounted ConfigMap. The time of the last change of the inode tells what the others do not: a copy
    that keeps the time and the size of the file it overwrites, and permissions.
    """

    real_path: str = ""
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0

    @classmethod
    def of(cls, name: str) -> FileSignature:
        """The file as it is."""
        try:
            real_path = os.path.realpath(name)
            found = os.stat(real_path)
        except (OSError, ValueError):
            return cls()
        return cls(real_path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def read_regular_file(name: str, max_bytes: int, *, path: str) -> bytes:
    """The content of the file ``name``. ``ConfigError`` at ``path``, saying why it cannot be had."""
    try:
        # Without O_NONBLOCK opening a FIFO waits for a writer; on regular files it means nothing.
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = _read_all(descriptor, max_bytes + 1) if is_regular else b""
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot be read ({reason})", path=path) from error
    if not is_regular:
        raise ConfigError("is not a regular file", path=path)
    if len(data) > max_bytes:
        raise ConfigError(f"is larger than {max_bytes} bytes", path=path)
    return data


def _read_all(descriptor: int, limit: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(limit)


def write_for_owner(path: Path, text: str) -> None:
    """Replace a file that its owner alone may read. ``OSError``."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY), "w") as file:
        file.write(text)
    draft.replace(path)
