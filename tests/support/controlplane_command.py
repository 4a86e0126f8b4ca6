"""``pointsman`` with a control plane of its own, as a process that answers its API."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from dataplane.processes.ports import Ports
from tests.support.waiting import PATIENCE_S, wait_until


class Server(NamedTuple):
    """A process that serves."""

    process: subprocess.Popen[bytes]
    address: str
    """As its log says it."""


class Command:
    """Runs ``pointsman`` with a control plane of its own."""

    def __init__(self, folder: Path) -> None:
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("POINTSMAN_")},
            "POINTSMAN_STATE": str(folder / "state"),
            "POINTSMAN_PROFILE": str(folder / "profile.json"),
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        }
        self.environment.pop("DATABASE_URL", None)
        self.ports = Ports(random.SystemRandom())

    def run(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cli.main", *arguments],
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def says(self, *arguments: str, text: str | None = None) -> str:
        done = self.run(*arguments, text=text)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def refusal(self, *arguments: str, text: str | None = None) -> str:
        done = self.run(*arguments, text=text)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    def begins(self) -> str:
        """Set up the control plane as ``controlplane init`` does; the administrator's token.

        The command is run once in a test process; each gets a copy of its state, with token and key.
        """
        folder, token = _begun()
        shutil.copytree(folder, self.environment["POINTSMAN_STATE"], dirs_exist_ok=True)
        return token

    def ask(self, path: str, body: Any = None) -> Any:
        """What the API at `POINTSMAN_URL` answers: to a POST when there is a body, else to a GET."""
        request = urllib.request.Request(
            f"{self.environment['POINTSMAN_URL']}/api/v1/{path}",
            None if body is None else json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {self.environment['POINTSMAN_TOKEN']}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.loads(answer.read() or b"null")

    def worker_token(self, user: str, name: str, **binding: str) -> str:
        """A new token of a new user who is a worker, for what it is bound to."""
        self.ask("users", {"name": user, "role": "worker"})
        return str(self.ask(f"users/{user}/tokens", {"name": name, "binding": binding})["token"])

    @contextmanager
    def serves(self, log: Path, *arguments: str, port: str = "") -> Iterator[Server]:
        """A server of the control plane that runs until the block ends, and then ends in order.

        Without a port it is at one that is still its own when it comes back after an absence.
        """
        port = port or str(self.ports(0, "port"))
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "cli.main", "controlplane", *arguments, "--port", port],
                env=self.environment,
                stderr=output,
                stdout=output,
            )
        try:
            yield Server(process, address(process, log))
            process.terminate()
            assert process.wait(PATIENCE_S) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


@cache
def _begun() -> tuple[Path, str]:
    folder = Path(mkdtemp(prefix="pointsman-test-"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # and not a fork that a test has made
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    token = Command(folder).says("controlplane", "init").split()[-1]
    return folder / "state", token


@contextmanager
def serving(command: Command, log: Path) -> Iterator[Command]:
    """A control plane that answers, and its administrator's token in the environment."""
    token = command.begins()
    with command.serves(log, "serve") as server:
        command.environment |= {"POINTSMAN_URL": server.address, "POINTSMAN_TOKEN": token}
        yield command


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where the server listens, once it says so."""
    mark = "running on "

    def found() -> str:
        text = log.read_text()
        if mark in text.lower():
            return text[text.lower().index(mark) + len(mark) :].split()[0]
        assert process.poll() is None, text
        return ""

    return wait_until(found, log.read_text)
