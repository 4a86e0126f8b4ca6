"""The Celery application: what the control plane does at its own pace, on messages of Valkey or by the clock.

Tasks live in ``tasks.py`` of each app. They are short, may run twice and may be lost: each one finds in the
database or in Valkey what is left to do, and its next turn comes by the clock. So results are not kept, and a
task that has waited longer than until its next turn is dropped.
"""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

app = Celery("controlplane")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
