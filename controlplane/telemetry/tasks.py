"""What is done with telemetry by the clock."""

from __future__ import annotations

from celery import shared_task

from controlplane import valkey
from controlplane.telemetry.guard import observe


@shared_task(name="telemetry.guard")
def guard() -> int:
    """Tell guards of rollouts what workers have counted."""
    with valkey.client() as client:
        return observe(client)
