"""The last good sets of resources on disk, so that a worker starts as it was while nobody can tell it better.

One file, readable for its owner only, replaced as a whole: a first line with the digest of the rest, then
JSON. A file that is damaged, of another pool or of another format counts as none, and why is told.

Beside it is a small one while a set is put into use: whoever finds it at a start knows that the process ended
over that set. Everything here blocks on the file system.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from dataplane.errors import ConfigError
from dataplane.files import read_regular_file
from dataplane.xds.messages import Resource, Version, digest_of
from dataplane.xds.subscriber import Held

MAX_FILE_BYTES: Final = 128 << 20
_DIGEST_BYTES: Final = 64
TRYING: Final = ".trying"
MAX_TRYING: Final = 1000

Set = tuple[str, str]
"""Type and digest."""


class _Set(msgspec.Struct, forbid_unknown_fields=True):
    version: str
    resources: tuple[Resource, ...]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1]
    cluster: str
    sets: Annotated[dict[str, _Set], msgspec.Meta(max_length=64)]


class Store:
    """The file of one worker."""

    def __init__(self, path: str, cluster: str) -> None:
        self.path = path
        self._cluster = cluster

    def load(self) -> dict[str, Held]:
        """Type -> what was in use last; empty when there is no file. ``ConfigError`` when it is no good."""
        if not os.path.lexists(self.path):
            return {}
        data = read_regular_file(self.path, MAX_FILE_BYTES, path=self.path)
        digest, _, body = data.partition(b"\n")
        if digest != _digest(body):
            raise ConfigError("is damaged: its digest is another", path=self.path)
        try:
            found = msgspec.json.decode(body, type=_File)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(f"is no file of this version: {error}", path=self.path) from None
        if found.cluster != self._cluster:
            raise ConfigError(f"is of the pool {found.cluster}, not {self._cluster}", path=self.path)
        return {type_url: self._held(each) for type_url, each in found.sets.items()}

    def begin(self, type_url: str, version: Version) -> None:
        """Note that a set is about to be put into use. ``OSError``."""
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), mode=0o700, exist_ok=True)
        with open(self.path + TRYING, "w") as file:
            file.write(f"{type_url} {version.digest}")

    def end(self) -> None:
        """The process has survived it."""
        with contextlib.suppress(OSError):
            os.unlink(self.path + TRYING)

    def unfinished(self) -> Set | None:
        """The set over which the last process ended, told once; None = over none."""
        try:
            with open(self.path + TRYING) as file:
                words = file.read(MAX_TRYING).split(" ")
        except (OSError, UnicodeDecodeError):
            return None
        self.end()
        return (words[0], words[1]) if len(words) == 2 else None

    def _held(self, found: _Set) -> Held:
        version = Version.parse(found.version)
        if version is None or digest_of(found.resources) != version.digest:
            raise ConfigError("has resources that are not those of their version", path=self.path)
        return Held(version, found.resources)

    def save(self, held: Mapping[str, Held]) -> None:
        """Replace the file, in a folder that is made for its owner alone if it is missing.

        ``OSError`` when that is not possible; the old file is whole then.
        """
        sets = {type_url: _Set(str(each.version), each.resources) for type_url, each in held.items()}
        body = msgspec.json.encode(_File(1, self._cluster, sets))
        folder = os.path.dirname(os.path.abspath(self.path))
        with contextlib.suppress(FileExistsError):  # what is there and no folder is said by the next call
            os.makedirs(folder, mode=0o700)
        descriptor, name = tempfile.mkstemp(prefix=".xds-", dir=folder)  # made with mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_digest(body) + b"\n" + body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
