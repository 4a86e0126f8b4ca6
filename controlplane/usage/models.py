"""The ledger, its totals per hour and per day, and what could not be read.

Totals change in the transaction that writes the records they stand for, so they agree with one another
whatever happens, and outlive the records.
"""

from __future__ import annotations

from django.db import models

from controlplane.core.models import MAX_NAME
from dataplane.usage.record import MAX_TEXT

MAX_PAYLOAD = 4000
MAX_REASON = 500
CURRENCY = 3


class LedgerEntry(models.Model):
    """One finished request (``dataplane.usage.record``)."""

    id = models.CharField(max_length=32, primary_key=True)
    at = models.DateTimeField(db_index=True)
    pool = models.CharField(max_length=MAX_TEXT)
    requested_model = models.CharField(max_length=MAX_TEXT)
    served_model = models.CharField(max_length=MAX_TEXT)
    tenant = models.CharField(max_length=MAX_TEXT)
    objective = models.CharField(max_length=MAX_TEXT)
    status = models.PositiveSmallIntegerField()
    ending = models.CharField(max_length=MAX_TEXT)
    prompt_tokens = models.PositiveBigIntegerField(null=True)
    completion_tokens = models.PositiveBigIntegerField(null=True)
    cached_tokens = models.PositiveBigIntegerField(null=True)
    streamed = models.BooleanField()
    duration_s = models.FloatField()
    ttft_s = models.FloatField(null=True)
    revision = models.CharField(max_length=MAX_TEXT)
    cost = models.DecimalField(max_digits=24, decimal_places=12, null=True)
    """By the price that held when the request was over; None when there was none."""
    currency = models.CharField(max_length=CURRENCY, default="")

    class Meta:
        """Newest first."""

        verbose_name_plural = "ledger entries"
        ordering = ["-at", "-id"]
        indexes = [models.Index("tenant", "at", name="ledger_by_tenant")]


class Totals(models.Model):
    """Sums over the requests of one tenant, model and pool that ended in one span of time."""

    start = models.DateTimeField()
    tenant = models.CharField(max_length=MAX_TEXT)
    model = models.CharField(max_length=MAX_TEXT)
    """The one the model servers were asked for."""
    pool = models.CharField(max_length=MAX_TEXT)
    currency = models.CharField(max_length=CURRENCY, default="")
    """Of the cost; empty for requests without a price."""
    requests = models.PositiveBigIntegerField(default=0)
    errors = models.PositiveBigIntegerField(default=0)
    """Without an answer, with one of status 400 or more, or broken off by a failure."""
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    duration_s = models.FloatField(default=0)
    cost = models.DecimalField(max_digits=28, decimal_places=12, default=0)

    class Meta:
        """Filled in by the two spans there are."""

        abstract = True
        ordering = ["-start", "tenant", "model", "pool", "currency"]


class HourlyUsage(Totals):
    """Of an hour, UTC."""

    class Meta(Totals.Meta):
        """One row for each key."""

        abstract = False
        verbose_name_plural = "hourly usage"
        constraints = [
            models.UniqueConstraint("start", "tenant", "model", "pool", "currency", name="hourly_usage_once")
        ]


class DailyUsage(Totals):
    """Of a day, UTC."""

    class Meta(Totals.Meta):
        """One row for each key."""

        abstract = False
        verbose_name_plural = "daily usage"
        constraints = [
            models.UniqueConstraint("start", "tenant", "model", "pool", "currency", name="daily_usage_once")
        ]


class DeadLetter(models.Model):
    """An entry of the stream that is no record."""

    entry = models.CharField(max_length=64, unique=True)
    """Its id in the stream."""
    at = models.DateTimeField(auto_now_add=True)
    reason = models.CharField(max_length=MAX_REASON)
    payload = models.CharField(max_length=MAX_PAYLOAD)
    """As much of it as is kept, with what is no text escaped."""
    source = models.CharField(max_length=MAX_NAME, default="")
    """The consumer that read it."""

    class Meta:
        """Newest first."""

        ordering = ["-id"]
