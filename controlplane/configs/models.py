"""Documents, their immutable revisions, rollouts of these, and what workers make of them.

A document points to its active revision, so there is at most one. Rollouts and reports say what happened;
what a worker should run follows from them (``controlplane.configs.rollout``).
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models

from controlplane.configs.rollout import Outcome, Stage
from controlplane.core.models import MAX_NAME, Resource
from dataplane.config import epp_checks, ipp

MAX_REASON = 1000


class ConfigDocument(Resource):
    """A configuration that can change: of pickers, with the pools it is for, of payload processors, or one
    guardrail policy."""

    kind = models.CharField(max_length=64, default=epp_checks.KIND)
    name = models.CharField(max_length=MAX_NAME)
    pools = models.JSONField(default=list)
    """Names of pools as the document lists them; ``PoolBinding`` finds the document of a pool."""
    content = models.TextField()
    """What workers get, as canonical JSON: that of the newest revision."""
    release = models.CharField(max_length=16, default="all")
    """How applying the document publishes it: ``all``, ``manual``, or the size of a canary."""
    comment = models.CharField(max_length=MAX_REASON, default="")
    """Why the newest revision is as it is."""
    active = models.ForeignKey("ConfigRevision", on_delete=models.SET_NULL, null=True, related_name="+")
    """What workers run unless a rollout says otherwise; None before the first rollout is complete."""

    class Meta(Resource.Meta):
        """By name, which is one of its kind's."""

        constraints = [models.UniqueConstraint("kind", "name", name="config_name_once_per_kind")]


class OfKind(models.Manager[Any]):
    """Documents of one kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().filter(kind=self._kind)


class PickerDocument(ConfigDocument):
    """EndpointPickerConfigs alone."""

    objects: ClassVar[Any] = OfKind(epp_checks.KIND)

    class Meta(ConfigDocument.Meta):
        """The same rows."""

        proxy = True
        constraints = []
        verbose_name = "endpoint picker config"


class ProcessorDocument(ConfigDocument):
    """PayloadProcessorConfigs alone."""

    objects: ClassVar[Any] = OfKind(ipp.KIND)

    class Meta(ConfigDocument.Meta):
        """The same rows."""

        proxy = True
        constraints = []
        verbose_name = "payload processor config"


class PoolBinding(models.Model):
    """Which document a pool is configured by."""

    document = models.ForeignKey(ConfigDocument, on_delete=models.CASCADE, related_name="bindings")
    pool = models.CharField(max_length=MAX_NAME, unique=True)


class ConfigRevision(models.Model):
    """What a document said at one time; never changed."""

    document = models.ForeignKey(ConfigDocument, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveBigIntegerField()
    """1, 2, 3, ... within a document."""
    content = models.TextField()
    digest = models.CharField(max_length=64)
    """SHA-256 of the content, hexadecimal."""
    author = models.CharField(max_length=MAX_NAME)
    comment = models.CharField(max_length=MAX_REASON, default="")
    parent = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="+")
    """The revision whose content this one was made from: the one before, or the one gone back to."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        """Newest first."""

        ordering = ["-number"]
        constraints = [models.UniqueConstraint("document", "number", name="revision_number_once")]

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write a new revision. ``ValueError`` for one that is there already."""
        if not self._state.adding:
            raise ValueError("revisions are never changed")
        super().save(*args, **kwargs)


class Running(models.Model):
    """The revision of a document that a worker runs beside others; ``Worker.applied`` has it where a worker
    runs one document alone."""

    worker = models.ForeignKey("xds.Worker", on_delete=models.CASCADE, related_name="running")
    document = models.ForeignKey(ConfigDocument, on_delete=models.CASCADE, related_name="running")
    revision = models.ForeignKey(ConfigRevision, on_delete=models.CASCADE, related_name="running")

    class Meta:
        """One of each document."""

        constraints = [
            models.UniqueConstraint(fields=["worker", "document"], name="running_once_per_document")
        ]


class Rollout(models.Model):
    """One revision on its way to the workers; the newest of a document is the one that counts."""

    document = models.ForeignKey(ConfigDocument, on_delete=models.CASCADE, related_name="rollouts")
    revision = models.ForeignKey(ConfigRevision, on_delete=models.CASCADE, related_name="rollouts")
    stage = models.CharField(max_length=16, choices=[(stage, stage) for stage in Stage])
    reason = models.CharField(max_length=MAX_REASON, default="")
    """Why it stopped."""
    canary_share = models.FloatField(null=True)
    canary_count = models.PositiveIntegerField(null=True)
    max_error_share = models.FloatField(null=True)
    max_blocked_share = models.FloatField(null=True)
    min_requests = models.PositiveIntegerField(default=0)
    author = models.CharField(max_length=MAX_NAME)
    comment = models.CharField(max_length=MAX_REASON, default="")
    """Why it was begun."""
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        """Newest first."""

        ordering = ["-id"]


class RevisionAck(models.Model):
    """What became of a revision at one worker, in one rollout."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="acks")
    worker = models.CharField(max_length=MAX_NAME)
    outcome = models.CharField(max_length=16, choices=[(outcome, outcome) for outcome in Outcome])
    problems = models.JSONField(default=list)
    """``[{path, message}]`` of a refusal."""
    requests = models.PositiveBigIntegerField(default=0)
    errors = models.PositiveBigIntegerField(default=0)
    blocked = models.PositiveBigIntegerField(default=0)
    """What the worker has counted since it applied the revision."""
    at = models.DateTimeField(auto_now=True)

    class Meta:
        """The last word of each worker counts."""

        ordering = ["worker"]
        constraints = [models.UniqueConstraint("rollout", "worker", name="ack_once_per_worker")]
