"""Ports for processes that are about to be started on this machine."""

import random
import socket
from typing import Protocol

from dataplane.errors import ConfigError

FREE_PORTS = range(20_000, 32_000)
"""Below the range from which Linux takes ports for outgoing connections, which would otherwise race us."""

FREE_PORT_TRIES = 200

LOOPBACK = "127.0.0.1"


class PortChooser(Protocol):
    """Chooses a port that is free at the moment."""

    def __call__(self, configured: int, path: str, address: str = LOOPBACK, hint: str = "") -> int:
        """Return the configured port, or a free one for 0; `path` and `hint` are for the complaint."""
        ...


class Ports:
    """Chooses ports for one run: never one twice, never one that is in use."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._chosen: set[int] = set()

    def __call__(self, configured: int, path: str, address: str = LOOPBACK, hint: str = "") -> int:
        """Return the configured port if it is free, or a free one for 0. Raises `ConfigError`."""
        candidates = [configured] if configured else self._rng.sample(FREE_PORTS, FREE_PORT_TRIES)
        for port in candidates:
            if port not in self._chosen and is_free(address, port):
                self._chosen.add(port)
                return port
        if configured in self._chosen:
            raise ConfigError(f"port {configured} is already used elsewhere in the file", path=path)
        if configured:
            raise ConfigError(
                f"port {configured} is in use; configure another, or 0 for a free one{hint}", path=path
            )
        raise ConfigError(f"no free port between {FREE_PORTS.start} and {FREE_PORTS.stop}", path=path)

    def release(self, *ports: int) -> None:
        """Let ports be chosen again."""
        self._chosen.difference_update(ports)


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
