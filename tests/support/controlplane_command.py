"""``pointsman`` with a control plane of its own, as a process that answers its API."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dataplane.processes.ports import Ports


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
            timeout=60,
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
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


@contextmanager
def serving(command: Command, log: Path) -> Iterator[Command]:
    """A control plane that answers, and its administrator's token in the environment."""
    first = command.says("controlplane", "init")
    with command.serves(log, "serve") as server:
        command.environment |= {"POINTSMAN_URL": server.address, "POINTSMAN_TOKEN": first.splitlines()[-1]}
        yield command


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where the server listens, once it says so."""
    mark = "running on "
    for _ in range(300):
        text = log.read_text()
        if mark in text.lower():
            return text[text.lower().index(mark) + len(mark) :].split()[0]
        assert process.poll() is None, text
        time.sleep(0.1)
    raise AssertionError(log.read_text())
