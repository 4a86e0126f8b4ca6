"""The Celery application: what the control plane does at its own pace, on messages of Valkey or by the clock.

Tasks live in ``tasks.py`` of each app. They are short, may run twice and may be lost: each one finds in the
database or in Valkey what is left to do, and its next turn comes by the clock. So results are not kept, and a
task that has waited longer than until its next turn is dropped.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Final

import redis
from celery import Celery, Task
from celery.schedules import crontab
from django.db import InterfaceError, OperationalError

from controlplane.database import is_away

log = logging.getLogger(__name__)

SCHEDULE: Final = {
    "telemetry.guard": {"task": "telemetry.guard", "schedule": 1.0, "options": {"expires": 5.0}},
    "usage.move": {"task": "usage.move", "schedule": 1.0, "options": {"expires": 5.0}},
    "usage.clean_up": {
        "task": "usage.clean_up",
        "schedule": crontab(hour="3", minute="17"),
        "options": {"expires": 3600.0},
    },
}
"""What is done by the clock: seconds between two turns, or a time of day in UTC."""

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")


class Turn(Task):  # type: ignore[type-arg] # it is generic for mypy alone
    """One turn of a task. That database or Valkey are away is said once, and not with every turn."""

    abstract = True
    throws = (OperationalError, InterfaceError, redis.ConnectionError, redis.TimeoutError)
    _is_away = False

    def on_failure(self, exc: BaseException, *_: Any) -> None:
        """Say it when it is the first; what Celery takes for that and is not, is told as a defect."""
        if isinstance(exc, OperationalError | InterfaceError) and not is_away(exc):
            log.error("%s has failed", self.name, exc_info=exc)
        elif isinstance(exc, self.throws) and not self._is_away:
            log.warning("%s waits, a server is away: %s", self.name, exc)
            self._is_away = True

    def on_success(self, *_: Any) -> None:
        """All is well, or well again."""
        if self._is_away:
            log.warning("%s goes on", self.name)
            self._is_away = False


app: Celery[Any] = Celery("controlplane", task_cls=Turn)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.beat_schedule = SCHEDULE
app.autodiscover_tasks()
