"""A real PostgreSQL for tests that can be killed as a crash would, and comes back with what it acknowledged.

A test that takes ``mortal_postgres`` is skipped where there is no PostgreSQL.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import psycopg
import pytest

from tests.architecture.tree import ROOT
from tests.support.waiting import wait_until

# A killed process loses no page that it has written; only what it has not.
OPTIONS = ("fsync=off", "full_page_writes=off", "listen_addresses=", "shared_buffers=32MB")


def script() -> ModuleType:
    """Where PostgreSQL is found, and as whom it runs."""
    spec = importlib.util.spec_from_file_location("postgres_script", ROOT / "scripts/postgres.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PostgresServer:
    """A server on a Unix socket of its own."""

    def __init__(self, home: Path, binaries: Path, identity: dict[str, Any]) -> None:
        self._home = home
        self._binaries = binaries
        self._identity = identity
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgres://pointsman@{urllib.parse.quote(str(home), safe='')}/postgres"
        init = ("initdb", "-D", "data", "-U", "pointsman", "-A", "trust", "-E", "UTF8", "--locale=C")
        with self._log() as log:
            subprocess.run(self._words(*init, "--no-sync"), cwd=home, check=True, stdout=log, **identity)

    def start(self) -> None:
        """Start, and return when it answers."""
        options = [word for option in OPTIONS for word in ("-c", option)]
        words = self._words("postgres", "-D", "data", "-k", str(self._home), *options)

        def answers() -> bool:
            if self._process is None or self._process.poll() is not None:
                # The dead one's children may hold its memory for a moment, so that a first try may end.
                with self._log() as log:
                    self._process = subprocess.Popen(
                        words,
                        cwd=self._home,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                        **self._identity,
                    )
            try:
                self.ask("SELECT 1")
            except psycopg.OperationalError:
                return False
            return True

        wait_until(answers, self.says)

    def ask(self, query: str) -> list[Any]:
        """Rows."""
        with psycopg.connect(self.url, connect_timeout=30) as connection:
            return connection.execute(query.encode()).fetchall()

    def kill(self) -> None:
        """End all of it at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def says(self) -> str:
        """Its log."""
        return (self._home / "log").read_text(errors="replace")

    def _words(self, name: str, *arguments: str) -> list[str]:
        return [str(self._binaries / name), *arguments]

    def _log(self) -> Any:
        return (self._home / "log").open("ab")


@pytest.fixture
def mortal_postgres() -> Iterator[PostgresServer]:
    """A server of this test alone."""
    found = script()
    binaries = found.binaries()
    if binaries is None:
        pytest.skip("there is no PostgreSQL on this machine")
    identity = found.unprivileged()
    with TemporaryDirectory(prefix="pg-", dir="/tmp") as name:  # a socket's path is short
        home = Path(name)
        if identity:
            os.chown(home, identity["user"], identity["group"])
        server = PostgresServer(home, binaries, identity)
        try:
            server.start()
            yield server
        finally:
            server.kill()
