"""A control plane with its discovery server and Valkey, and pickers that follow it: all of them processes.

What a test sees on pages is what these have done; nothing is reported in their place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

from dataplane.processes.child import die_with_parent
from tests.support.console import PASSWORD
from tests.support.controlplane_command import Command, Server
from tests.support.waiting import PATIENCE_S, wait_until

USER = "ann"
PICKERS = "pickers"


class Follower:
    """A picker of a pool, or a payload processor."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    def config(self) -> dict[str, Any]:
        """Its page about what it runs."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/debug/config", timeout=PATIENCE_S
        ) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def revision(self) -> str:
        """Digest of the configuration in use."""
        return str(self.config()["reload"]["revision"])

    def weight(self, scorer: str) -> float:
        """What a scorer counts in the default profile."""
        (profile,) = self.config()["config"]["schedulingProfiles"]
        return next(float(p["weight"]) for p in profile["plugins"] if p["pluginRef"] == scorer)

    def wait(self) -> None:
        """Until it answers."""

        def answers() -> bool:
            try:
                self.config()
            except urllib.error.URLError:
                assert self.process.poll() is None, self.log.read_text()
                return False
            return True

        wait_until(answers, self.log.read_text)


class Station:
    """Closes everything it has started."""

    def __init__(self, folder: Path, valkey: str) -> None:
        self.folder = folder
        self.command = Command(folder)
        self.command.environment["VALKEY_URL"] = valkey
        self._stack = ExitStack()
        self._web: AbstractContextManager[Server] | None = None
        self._port = ""
        self._xds = ""
        self.url = ""

    def __enter__(self) -> Self:
        with self._stack:
            self.command.environment["POINTSMAN_TOKEN"] = self.command.begins()
            self._stack.callback(self.stop_web)
            self.start_web()
            self.ask("users", {"name": USER, "role": "operator"})
            self.ask(f"users/{USER}/password", {"password": PASSWORD})
            self.ask("users", {"name": PICKERS, "role": "worker"})
            xds = self.command.serves(self.folder / "xds.log", "serve-xds")
            self._xds = self._stack.enter_context(xds).address
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_web(self) -> None:
        """The pages, at the same port every time."""
        self._web = self.command.serves(self.folder / "web.log", "serve", port=self._port)
        self.url = self.command.environment["POINTSMAN_URL"] = self._web.__enter__().address
        self._port = self.url.rpartition(":")[2]

    def stop_web(self) -> None:
        """In order."""
        web, self._web = self._web, None
        if web is not None:
            web.__exit__(None, None, None)

    def follow(self, pool: str, *names: str) -> list[Follower]:
        """Pickers of a pool, with a token that is for it alone."""
        token = self.folder / f"{pool}.token"
        wanted = {"name": pool, "binding": {"pool": pool}}
        token.write_text(self.ask(f"users/{PICKERS}/tokens", wanted)["token"])
        return self._all([self._start(name, token, self._of_picker(pool, name)) for name in names])

    def process(self, processor: str, *names: str) -> list[Follower]:
        """Payload processors of a name, with a token that is for it alone."""
        token = self.folder / f"{processor}.processor-token"
        wanted = {"name": processor, "binding": {"processor": processor}}
        token.write_text(self.ask(f"users/{PICKERS}/tokens", wanted)["token"])
        return self._all([self._start(name, token, ["ipp", "--name", processor]) for name in names])

    def _all(self, followers: list[Follower]) -> list[Follower]:
        for follower in followers:
            follower.wait()
        return followers

    def leave(self, followers: Sequence[Follower]) -> None:
        """End them before everything ends, so that nothing is heard of them."""
        for follower in followers:
            _end(follower.process)

    def _of_picker(self, pool: str, name: str) -> list[str]:
        endpoints = self.folder / f"{name}.endpoints"
        endpoints.write_text(json.dumps({"endpoints": [{"name": "e", "address": "127.0.0.1", "port": "9"}]}))
        return ["epp", "--pool-name", pool, "--endpoints-file", str(endpoints)]

    def _start(self, name: str, token: Path, what: Sequence[str]) -> Follower:
        log = self.folder / f"{name}.log"
        port = self.command.ports(0, "port")
        words = [
            *(sys.executable, "-m", "cli.main", *what),
            *("--host", "127.0.0.1", "--secure-serving=false", "--drain-timeout", "1s"),
            *("--grpc-port", "0", "--grpc-health-port", "0", "--metrics-port", str(port)),
            *("--xds-server", self._xds),
            *("--xds-token-file", str(token), "--xds-cache", str(self.folder / f"{name}.last")),
            *("--xds-node-id", name),
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(
                words,
                env=self.command.environment,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent(os.getpid()),
            )
        self._stack.callback(_end, process)
        return Follower(process, port, log)

    def applied(self, worker: str) -> dict[str, Any]:
        """What the control plane knows a worker to run."""
        return dict(self.ask(f"workers/{worker}")["applied"] or {})

    def ask(self, address: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the API answers to the administrator."""
        found: dict[str, Any] = self.command.ask(address, body)
        return found


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
