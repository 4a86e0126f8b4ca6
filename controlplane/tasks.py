"""The process that runs tasks: one worker, with the clock of periodic tasks inside.

It is one process with two threads. Tasks run one after another on the main thread, which suits SQLite and
leaves nobody behind when the process is killed; the clock only sends messages. More of these processes may
run on one Valkey: a periodic task is then sent by each, and does no harm twice. SIGTERM lets the running task
end.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any, Final

from celery import bootsteps
from celery.beat import EmbeddedService, Scheduler, SchedulingError
from celery.exceptions import SecurityWarning

from controlplane.celery import app

log = logging.getLogger(__name__)


class Timetable(Scheduler):
    """Says once that messages cannot be sent, and not with every turn of every task."""

    _is_away = False

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send one task; its next turn comes whether that works or not."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            if not self._is_away:
                log.warning("no task is started: %s", error)
            self._is_away = True
        else:
            self._is_away = False


class Clock(bootsteps.StartStopStep):
    """Sends periodic tasks while the worker runs."""

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._service: Any = None

    def start(self, parent: Any) -> None:
        """Begin; a task whose turn has come is sent at once."""
        self._service = EmbeddedService(app, thread=True, scheduler_cls=Timetable)
        self._service.start()

    def stop(self, parent: Any) -> None:
        """End and wait for the thread."""
        if self._service is not None:
            self._service.stop()
            self._service = None

    terminate = stop


CHATTY: Final = ("celery.beat", "celery.worker.strategy", "celery.app.trace")
"""They have a line for every turn of every task; what fails is told all the same."""


def run() -> int:
    """Run tasks until SIGTERM or SIGINT; the worker's exit code."""
    # Run as root in a container, the worker warns of pickled messages; it accepts JSON alone.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    app.steps["worker"].add(Clock)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    worker = app.Worker(pool="solo", concurrency=1, loglevel=logging.INFO, without_mingle=True)
    worker.start()
    return int(worker.exitcode or 0)
