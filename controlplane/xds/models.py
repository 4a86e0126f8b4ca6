"""Workers as they introduced themselves, and their last answers."""

from __future__ import annotations

from typing import Final

from django.db import models

from controlplane.core.models import MAX_NAME
from controlplane.xds.nodes import NodeKind

MAX_TYPE_URL: Final = 255
MAX_VERSION: Final = 64
MAX_MESSAGE: Final = 600


class Outcome(models.TextChoices):
    """What a worker said of a set."""

    ACK = "ack"
    NACK = "nack"


class Worker(models.Model):
    """A process that was sent configuration."""

    node_id = models.CharField(max_length=MAX_NAME, unique=True)
    kind = models.CharField(max_length=16, default=NodeKind.PICKER.value)
    """A ``NodeKind``."""
    pool = models.CharField(max_length=MAX_NAME, db_index=True)
    """Whose it is: of pickers the pool, of Envoys the gateway, of payload processors the name they share."""
    metadata = models.JSONField(default=dict)
    user = models.CharField(max_length=MAX_NAME)
    """By whose token it subscribes."""
    connected_at = models.DateTimeField()
    """When its last stream began."""
    seen_at = models.DateTimeField(db_index=True)
    """When a server last had a stream of it."""
    is_connected = models.BooleanField(default=True)
    """False once its stream has ended in order; a server that was killed leaves it true, see ``seen_at``."""
    is_awaited = models.BooleanField(default=False, db_index=True)
    """Whether rollouts of configurations wait for it: it has subscribed to them, and has not been gone for
    long."""
    applied = models.ForeignKey(
        "configs.ConfigRevision", on_delete=models.SET_NULL, null=True, related_name="workers"
    )
    """The revision of a configuration that it runs; None = that of its own flags."""

    class Meta:
        """By name."""

        ordering = ["node_id"]


class WorkerAnswer(models.Model):
    """What a worker said of one set of one type; the last few are kept."""

    worker = models.ForeignKey(Worker, on_delete=models.CASCADE, related_name="answers")
    type_url = models.CharField(max_length=MAX_TYPE_URL)
    outcome = models.CharField(max_length=8, choices=Outcome.choices)
    version = models.CharField(max_length=MAX_VERSION)
    """Of the set it answers."""
    in_use = models.CharField(max_length=MAX_VERSION)
    """Version the worker uses after it; empty = none."""
    message = models.CharField(max_length=MAX_MESSAGE)
    problems = models.JSONField(default=list)
    """``[{path, message}]`` of a NACK."""
    at = models.DateTimeField()

    class Meta:
        """Newest first."""

        ordering = ["-id"]
