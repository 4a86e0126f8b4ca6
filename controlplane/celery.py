"""The Celery application: what the control plane does at its own pace, on messages of Valkey or by the clock.

Tasks live in ``tasks.py`` of each app. They are short, may run twice and may be lost: each one finds in the
database or in Valkey what is left to do, and its next turn comes by the clock. So results are not kept, and a
task that has waited longer than until its next turn is dropped.
"""

from __future__ import annotations

import os
from typing import Final

from celery import Celery
from celery.schedules import crontab

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

app = Celery("controlplane")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.beat_schedule = SCHEDULE
app.autodiscover_tasks()
