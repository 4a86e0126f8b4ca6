"""Ports for processes that are about to be started on this machine.

Between the choice of a port and the moment its process listens on it, another run may choose it too. So what
is chosen is claimed: a Unix socket with the port in its abstract name, which the kernel gives to one process
of a network namespace only, and takes back however that process ends. Nothing here blocks.
"""

import random
import socket
import weakref
from typing import Final, Protocol

from dataplane.errors import ConfigError

FREE_PORTS = range(20_000, 32_000)
"""Below the range from which Linux takes ports for outgoing connections, which would otherwise race us."""

FREE_PORT_TRIES = 200

CLAIM: Final = "\0pointsman/port/"

LOOPBACK = "127.0.0.1"


class PortChooser(Protocol):
    """Chooses a port that is free at the moment."""

    def __call__(self, configured: int, path: str, address: str = LOOPBACK, hint: str = "") -> int:
        """Return the configured port, or a free one for 0; `path` and `hint` are for the complaint."""
        ...


class Ports:
    """Chooses ports for one run: never one twice, never one that is in use.

    What it chooses is no other run's until it is gone, or the port is released.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._chosen: set[int] = set()
        self._claims: dict[int, socket.socket] = {}
        weakref.finalize(self, _end, self._claims)

    def __call__(self, configured: int, path: str, address: str = LOOPBACK, hint: str = "") -> int:
        """Return the configured port if it is free, or a free one for 0. Raises `ConfigError`."""
        if configured in self._chosen:
            raise ConfigError(f"port {configured} is already used elsewhere in the file", path=path)
        candidates = [configured] if configured else self._drawn()
        for port in candidates:
            if self._take(address, port):
                return port
        if configured:
            raise ConfigError(
                f"port {configured} is in use; configure another, or 0 for a free one{hint}", path=path
            )
        raise ConfigError(f"no free port between {FREE_PORTS.start} and {FREE_PORTS.stop}", path=path)

    def again(self, last: int, path: str) -> int:
        """Return the port of the last time if it can be had, else a free one. Raises `ConfigError`."""
        if last and last not in self._chosen and self._take(LOOPBACK, last):
            return last
        return self(0, path)

    def release(self, *ports: int) -> None:
        """Let ports be chosen again."""
        self._chosen.difference_update(ports)
        for port in ports:
            claim = self._claims.pop(port, None)
            if claim is not None:
                claim.close()

    def _drawn(self) -> list[int]:
        drawn = self._rng.sample(FREE_PORTS, min(FREE_PORT_TRIES, len(FREE_PORTS)))
        return [port for port in drawn if port not in self._chosen]

    def _take(self, address: str, port: int) -> bool:
        claim: socket.socket | None = None
        if port in FREE_PORTS:  # no other is ever drawn
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"{CLAIM}{port}")
            except OSError:  # another run has chosen it
                claim.close()
                return False
        if not is_free(address, port):
            if claim is not None:
                claim.close()
            return False
        self._chosen.add(port)
        if claim is not None:
            self._claims[port] = claim
        return True


def _end(claims: dict[int, socket.socket]) -> None:
    for claim in claims.values():
        claim.close()


def is_free(address: str, port: int) -> bool:
    """Tell whether a listener could be opened now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True
