"""The processes of a benchmark: started on loopback, watched while they get ready, stopped whatever happens.

A child's output goes to a file in the run's folder, so that a child that does not come up is answered with
what it said. When the benchmark itself is killed, the kernel kills its children. Children that are not
measured at the moment can be paused, so that their housekeeping costs the others nothing.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from benchmarks.cpu import process_seconds

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 5.0
LOG_TAIL_BYTES = 2000

LAUNCH = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")))


class BenchError(Exception):
    """The measurement cannot be done; the message says why and what to do."""


class Child:
    """One process and its log. Entering the context waits until it is ready; leaving it ends the process."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = self.start([*LAUNCH, str(os.getpid()), *command], log)

    def start(self, command: list[str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start the process with all output going to its log."""
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def become_ready(self) -> None:
        """Return when the process can be used; here at once."""

    def __enter__(self) -> Self:
        try:
            self.become_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask the process to end, and kill it when it does not."""
        if self.process.poll() is None:
            self.resume()
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def cpu_seconds(self) -> float:
        """CPU time of all its threads since it started."""
        if self.process.poll() is not None:
            raise self.gone()
        return process_seconds(self.pid)

    def pause(self) -> None:
        """Stop it in its tracks until `resume`."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        self.process.send_signal(signal.SIGCONT)

    def pin(self, cpu: int) -> None:
        """Keep all its threads on one CPU."""
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            os.sched_setaffinity(int(thread), {cpu})

    def wait_until(self, ready: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S) -> None:
        """Poll until `ready` says so; fail early when the process ends."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if self.process.poll() is not None:
                raise self.gone()
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name} is not ready after {timeout_s:g} s{self.tail()}")
            time.sleep(0.05)

    def gone(self) -> BenchError:
        """The error for a process that ended while it was needed."""
        return BenchError(f"{self.name} ended with code {self.process.wait(STOP_TIMEOUT_S)}{self.tail()}")

    def tail(self) -> str:
        """The end of its log, as a part of an error message."""
        text = self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
        return f"; its last words:\n{text}" if text else ""


class Worker(Child):
    """A process of this package: it takes commands in lines on stdin and answers in lines on stdout."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def __init__(self, name: str, module: str, arguments: Sequence[str], folder: Path) -> None:
        super().__init__(name, module_command(module, *arguments), folder)

    def start(self, command: list[str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start the process with pipes for the conversation; only complaints go to the log."""
        process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        if process.stdin is None or process.stdout is None:
            raise BenchError(f"no pipes to {self.name}")
        self.stdin, self.stdout = process.stdin, process.stdout
        return process

    def stop(self) -> None:
        """End the conversation, then the process."""
        self.stdin.close()
        super().stop()
        self.stdout.close()

    def ask(self, command: str, timeout_s: float = READY_TIMEOUT_S) -> bytes:
        """Write a line to its stdin and return the line it answers with."""
        try:
            self.stdin.write(command.encode() + b"\n")
        except BrokenPipeError:
            raise self.gone() from None
        return self.read_line(timeout_s)

    def read_line(self, timeout_s: float = READY_TIMEOUT_S) -> bytes:
        """The next line of its stdout, without the line end."""
        descriptor = self.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        line = bytearray()
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise BenchError(f"{self.name} did not answer within {timeout_s:g} s{self.tail()}")
            received = os.read(descriptor, 65536)
            if not received:
                raise self.gone()
            line += received
        return bytes(line[:-1])


def module_command(module: str, *arguments: str) -> list[str]:
    """How to run a module of this project with the running interpreter."""
    return [sys.executable, "-m", module, *arguments]
