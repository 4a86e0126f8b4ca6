"""What is done with usage by the clock."""

from __future__ import annotations

import logging

from celery import shared_task

from controlplane import valkey
from controlplane.usage.intake import Intake
from controlplane.usage.retention import clean_up

log = logging.getLogger(__name__)


@shared_task(name="usage.move")
def move() -> int:
    """Bring records from Valkey to the database; how many entries were taken."""
    with valkey.client() as client:
        moved = Intake(client).move()
    if moved.dead:
        log.warning("%d entries of the usage stream are no records; see the dead letters", moved.dead)
    return moved.entries


@shared_task(name="usage.clean_up")
def clean_up_usage() -> dict[str, int]:
    """Delete what has been kept long enough."""
    return clean_up()
