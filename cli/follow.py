"""`pointsman controlplane follow`: keep a picker's configuration file what the control plane wants it to be.

Runs beside one picker. It asks the control plane, writes the file, lets the picker read it, and reports
whether the picker runs the revision or refuses it and why. When the control plane cannot be reached, nothing
changes: the file stays, the picker serves.

A refused text does not stay in the file, because a picker that restarts would not start with it: the last
text that the picker ran takes its place. That text is kept in `FILE.last-good`, so that it survives the end
of this program between the two.
"""

import argparse
import contextlib
import hashlib
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from cli.documents import RefusedError, add_url, guarded
from cli.follow_ends import (
    ControlPlane,
    Counts,
    PickerPages,
    Problem,
    Running,
    UnreachableError,
    Wanted,
)
from dataplane.processes.folder import write_atomically

OBSERVE_S = 5.0
"""How often requests and errors are reported while a rollout is guarded."""
MAX_BACK_OFF_S = 30.0
MAX_FILE_BYTES = 4 << 20
LAST_GOOD = ".last-good"
NOT_DONE = 1


class Control(Protocol):
    """The control plane as seen from here; its methods raise `UnreachableError`."""

    def wanted(self, etag: str) -> Wanted | None:
        """What is wanted; None when it is what `etag` names, or nothing is published."""

    def acknowledge(self, wanted: Wanted, problems: list[Problem]) -> None:
        """Report what became of a revision."""

    def observe(self, wanted: Wanted, counts: Counts) -> None:
        """Report how requests fare since it runs."""


class Picker(Protocol):
    """The picker as seen from here; its methods raise `UnreachableError`."""

    def reload(self) -> Running:
        """Let it read its file, and see what came of it."""

    def running(self) -> Running:
        """What it runs."""

    def counts(self) -> Counts:
        """What it has counted."""


class Follower:
    """One round after another; what could not be done is done in the next."""

    def __init__(
        self,
        control: Control,
        picker: Picker,
        file: Path,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._control = control
        self._picker = picker
        self._file = file
        self._last_good = file.with_name(file.name + LAST_GOOD)
        self._say = say
        self._clock = clock
        self._etag = ""
        self._pending: Wanted | None = None
        self._report: tuple[Wanted, list[Problem]] | None = None
        self._running: Wanted | None = None
        self._baseline = Counts(0, 0)
        self._observed_at = 0.0
        self._unproven: bytes | None = None
        """What was written where there was no file; no picker has run it yet."""

    @property
    def is_settled(self) -> bool:
        """Whether the picker runs what was wanted last, and that is reported."""
        return self._running is not None and self._pending is None and self._report is None

    def once(self) -> None:
        """Ask, apply, report. `UnreachableError` says who does not answer; the next call goes on."""
        self._send_report()
        wanted = self._control.wanted(self._etag)
        if wanted is not None:
            if hashlib.sha256(wanted.content.encode()).hexdigest() != wanted.digest:
                raise UnreachableError("the control plane's answer is damaged: its digest is another one")
            self._pending = wanted
        if self._pending is not None:
            self._apply(self._pending)
            self._send_report()
        self._observe()

    def _apply(self, wanted: Wanted) -> None:
        text = wanted.content.encode()
        before = self._read(self._file)
        if before is None or before == self._unproven:
            self._write(self._file, text)  # a picker that waits for its file starts with it
            before, self._unproven = None, text
        self._picker.running()  # whoever does not answer can refuse nothing: then the file stays as it is
        if before is not None and before != text:
            if self._read(self._last_good) is None:
                self._write(self._last_good, before)
            self._write(self._file, text)
        problems = self._verdict(wanted, self._picker.reload())
        self._unproven = None
        if problems:
            self._restore(text, before)
            self._running = None
            self._say(f"the picker refuses revision {wanted.revision}: {problems[0].message}")
        else:
            self._write(self._last_good, text)
            self._keep(wanted)
        self._pending, self._etag = None, wanted.etag
        self._report = wanted, problems

    def _verdict(self, wanted: Wanted, found: Running) -> list[Problem]:
        if found.refused:
            return [_problem(line) for line in found.refused]
        if found.revision and wanted.digest.startswith(found.revision):
            return []
        message = (
            f"the picker runs {found.revision or 'another text'}; start it with --config-file {self._file}"
        )
        return [Problem("", message)]

    def _keep(self, wanted: Wanted) -> None:
        if self._running is None or self._running.digest != wanted.digest:
            self._baseline = self._picker.counts()
        if self._running is None or self._running.revision != wanted.revision:
            self._say(f"the picker runs revision {wanted.revision} of {wanted.document}")
        self._running = wanted

    def _restore(self, text: bytes, before: bytes | None) -> None:
        """Put the last text that ran in the place of a refused one."""
        good = self._read(self._last_good)
        if good is None or good == text:
            good = None if before == text else before
        if good is None:
            self._file.unlink(missing_ok=True)
            return
        self._write(self._file, good)
        # The picker runs this text already and only notes that the file is well again; if it has just gone
        # away, it starts with it.
        with contextlib.suppress(UnreachableError):
            self._picker.reload()

    def _send_report(self) -> None:
        if self._report is not None:
            self._control.acknowledge(*self._report)
            self._report = None

    def _observe(self) -> None:
        running = self._running
        if running is None or not running.is_guarded or self._clock() - self._observed_at < OBSERVE_S:
            return
        now = self._picker.counts()
        if now.requests < self._baseline.requests or now.errors < self._baseline.errors:
            self._baseline = Counts(0, 0)  # the picker has restarted
        errors = now.errors - self._baseline.errors
        # Requests that fail before an endpoint is found count as errors only.
        requests = max(now.requests - self._baseline.requests, errors)
        self._control.observe(running, Counts(requests, errors))
        self._observed_at = self._clock()

    def _read(self, file: Path) -> bytes | None:
        try:
            with file.open("rb") as opened:
                return opened.read(MAX_FILE_BYTES)
        except FileNotFoundError:
            return None

    def _write(self, file: Path, text: bytes) -> None:
        if self._read(file) != text:
            write_atomically(file, text)


def _problem(line: str) -> Problem:
    """A picker's `path: message`; a message without a path stays whole."""
    path, separator, message = line.partition(": ")
    return Problem(path, message) if separator and " " not in path else Problem("", line)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `follow`."""
    add_url(parser)
    parser.description = f"{__doc__}\n{parser.description}"
    parser.add_argument("--pool", required=True, help="the pool whose picker this is")
    parser.add_argument("--config-file", required=True, type=Path, metavar="FILE", help="the picker's own")
    parser.add_argument(
        "--picker",
        default="http://127.0.0.1:9090",
        metavar="URL",
        help="the picker's metrics port (default: http://127.0.0.1:9090)",
    )
    parser.add_argument("--worker", metavar="ID", help="who this is (default: host name and pool)")
    parser.add_argument("--interval", type=float, default=2.0, metavar="S", help="seconds (default: 2)")
    parser.add_argument("--once", action="store_true", help="one round; exit code 1 unless all is done")
    parser.set_defaults(run=lambda arguments: guarded("controlplane follow", run_follow, arguments))


def run_follow(arguments: argparse.Namespace) -> int:
    """Follow until a signal ends it."""
    if not 0.1 <= arguments.interval <= 3600:
        raise RefusedError(f"--interval: {arguments.interval:g} is not 0.1 to 3600")
    if not arguments.picker.startswith(("http://", "https://")):
        raise RefusedError(f"--picker: {arguments.picker} is no http or https URL")
    worker = arguments.worker or f"{socket.gethostname().lower()}-{arguments.pool}"
    control = ControlPlane(arguments, arguments.pool, worker)
    follower = Follower(control, PickerPages(arguments.picker), arguments.config_file, _say)
    wait, said = arguments.interval, ""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while not ended.is_set():
        try:
            follower.once()
            wait, trouble = arguments.interval, ""
        except (UnreachableError, OSError) as error:
            wait, trouble = min(wait * 2, max(MAX_BACK_OFF_S, arguments.interval)), str(error)
        if trouble != said:
            _say(trouble or "all is well again")
            said = trouble
        if arguments.once:
            return 0 if follower.is_settled else NOT_DONE
        # Workers that began together do not ask together for ever.
        ended.wait(wait * random.uniform(0.8, 1.2))  # noqa: S311 - nothing secret
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"pointsman controlplane follow: {text}\n")
    sys.stderr.flush()
