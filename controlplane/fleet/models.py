"""Pools, the endpoints listed for them, and what their driver last saw."""

from __future__ import annotations

from django.db import models

from controlplane.core.models import MAX_NAME, Resource


class InferencePool(Resource):
    """Model servers that serve the same models, and their picker."""

    spec = models.JSONField()
    """As its document has it, defaults included."""
    driver = models.CharField(max_length=16, blank=True, db_index=True)
    """Who runs it; empty = nobody here."""


class EndpointList(Resource):
    """Some of a pool's endpoints, in the words of the picker's endpoints file."""

    pool = models.CharField(max_length=MAX_NAME, db_index=True)
    resolve = models.JSONField(default=dict)
    endpoints = models.JSONField()


class PoolStatus(models.Model):
    """The driver's last report of a pool; overwritten, never a history."""

    pool = models.CharField(max_length=MAX_NAME, unique=True)
    reported_at = models.DateTimeField()
    runner = models.CharField(max_length=MAX_NAME)
    """Who reports: host and process."""
    report = models.JSONField()

    class Meta:
        """As people call many of them."""

        verbose_name_plural = "pool statuses"


class Health(models.TextChoices):
    """How an endpoint fares, as its pool's picker sees it."""

    HEALTHY = "healthy"
    STALE = "stale"
    """Its metrics are old: what is known of its load counts less."""
    UNREACHABLE = "unreachable"
    """Nobody listens there."""
    EJECTED = "ejected"
    """It failed requests and is left alone for a while."""


class PoolEndpoint(models.Model):
    """An endpoint that a pool's picker has; written by the pool's driver, overwritten, never a history."""

    pool = models.CharField(max_length=MAX_NAME)
    name = models.CharField(max_length=MAX_NAME)
    address = models.CharField(max_length=64)
    """IP address."""
    port = models.PositiveIntegerField()
    health = models.CharField(max_length=16, choices=Health.choices)
    load = models.JSONField()
    """waiting, running, kvUsage, inflight and the like."""
    changed_at = models.DateTimeField()
    """When something of it was last another than before."""

    class Meta:
        """An address is one endpoint."""

        ordering = ["pool", "name"]
        constraints = [
            models.UniqueConstraint("pool", "address", "port", name="endpoint_once_per_pool"),
        ]
