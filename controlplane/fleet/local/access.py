"""How pickers reach the control plane: where it listens, and what each pool's folder keeps for that.

    <state>/pools/<pool>/token      the picker's own, readable for its owner alone
    <state>/pools/<pool>/received   what the control plane sent last, with which the picker starts

A picker reads its token for every stream, so another one needs no restart; it is in no command line and no
environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dataplane.errors import ConfigError
from dataplane.files import read_regular_file, write_for_owner
from dataplane.processes.child import StartError
from epp.options import parse_args

TOKEN: Final = "token"  # noqa: S105 - the file's name
RECEIVED: Final = "received"
MAX_TOKEN_BYTES: Final = 4096
MAX_PEM_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """Where it sends workers their configuration, and what proves the one to the other."""

    server: str
    """``host:port``."""
    ca_file: str = ""
    """Authorities of its certificate, PEM; empty = no TLS."""
    cert_file: str = ""
    key_file: str = ""
    """A certificate of the pickers, and its key; empty = none."""

    def flags(self) -> list[str]:
        """Of every picker."""
        given = {"ca": self.ca_file, "cert": self.cert_file, "key": self.key_file}
        flags = ["--xds-server", self.server]
        for name, file in given.items():
            flags += [f"--xds-{name}", str(Path(file).absolute())] if file else []
        return flags

    def check(self) -> None:
        """``ConfigError`` for what no picker would start with."""
        parse_args(["--endpoints-file", "endpoints", *self.flags()])
        for name, file in (("ca", self.ca_file), ("cert", self.cert_file), ("key", self.key_file)):
            if file:
                read_regular_file(file, MAX_PEM_BYTES, path=f"--xds-{name}")


class PoolAccess:
    """That of one pool's picker. Its files are small; reading and writing them blocks."""

    def __init__(self, pool: str, folder: Path, control_plane: ControlPlane) -> None:
        self._pool = pool
        self._folder = folder
        self._control_plane = control_plane
        self.token = kept_token(folder)
        """Empty as long as there is none."""
        self._written = self.token

    def prepare(self) -> None:
        """Have everything that the flags name. ``StartError`` without a token, ``OSError``."""
        if not self.token:
            raise StartError("there is no token for its picker yet; the database has to be asked for one")
        if self.token != self._written:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_for_owner(self._folder / TOKEN, self.token)
            self._written = self.token

    def flags(self) -> list[str]:
        """The picker is known by the name of its pool."""
        return [
            *self._control_plane.flags(),
            *("--xds-token-file", str(self._folder / TOKEN)),
            *("--xds-cache", str(self._folder / RECEIVED)),
            *("--xds-node-id", self._pool),
        ]


def kept_token(folder: Path) -> str:
    """The token in a pool's folder; empty when there is none."""
    try:
        data = read_regular_file(str(folder / TOKEN), MAX_TOKEN_BYTES, path=TOKEN)
    except ConfigError:
        return ""
    return data.decode("ascii", "ignore").strip()
