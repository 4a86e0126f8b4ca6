"""People, their tokens, what they changed, and what all configured objects have in common."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models.functions import Now

from controlplane.core.roles import BoundTo, Channel, Role

MAX_NAME = 253
"""Characters of an object's name, as in Kubernetes."""


class User(AbstractUser):
    """Somebody who may log in."""

    role = models.CharField(max_length=16, choices=[(role, role) for role in Role], default=Role.VIEWER)
    version = models.PositiveBigIntegerField(default=1)
    """Rises with every change of role and of whether he may log in."""


class ApiToken(models.Model):
    """Lets a program act as a user. Of the token itself only a digest is kept."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=MAX_NAME)
    prefix = models.CharField(max_length=12, unique=True)
    """The part that may be shown, to tell tokens apart."""
    digest = models.CharField(max_length=64)
    """SHA-256 of the whole token, hexadecimal; a token has 256 random bits, so no salt is needed."""
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    bound_to = models.CharField(max_length=16, choices=[(kind, kind) for kind in BoundTo], default="")
    """Empty: the token is bound to nothing."""
    bound_name = models.CharField(max_length=MAX_NAME, default="")
    bound_node = models.CharField(max_length=MAX_NAME, default="")
    """Empty: all nodes of what it is bound to."""

    class Meta:
        """A user's tokens have different names."""

        verbose_name = "API token"
        constraints = [models.UniqueConstraint("user", "name", name="token_name_once_per_user")]


class AuditEntry(models.Model):
    """One change, written in the transaction that makes it and never touched again."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor = models.CharField(max_length=MAX_NAME)
    channel = models.CharField(max_length=16, choices=[(channel, channel) for channel in Channel])
    action = models.CharField(max_length=16)
    kind = models.CharField(max_length=64)
    name = models.CharField(max_length=MAX_NAME)
    request_id = models.CharField(max_length=64, default="")
    """Of the request that made the change; empty for commands and tasks."""
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    """The object as a document before and after; None where there was or is none."""

    class Meta:
        """Newest first, and found by object."""

        verbose_name_plural = "audit entries"
        ordering = ["-id"]
        indexes = [models.Index("kind", "name", name="audit_by_object")]


class ChangeCounter(models.Model):
    """One row with the number of changes that are rows no more; see ``changes``."""

    number = models.PositiveBigIntegerField(default=0)


class Change(models.Model):
    """Stands for one change until it is folded into the counter; see ``changes``."""

    at = models.DateTimeField(db_default=Now())
    """By the database's clock."""


class Resource(models.Model):
    """A configured object: a name, labels, and a version that rises with every change."""

    name = models.CharField(max_length=MAX_NAME, unique=True)
    labels = models.JSONField(default=dict)
    version = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        """Each kind has a table of its own."""

        abstract = True
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class LoginFailure(models.Model):
    """A login that was refused, or is under way; see ``throttle``."""

    username = models.CharField(max_length=MAX_NAME, db_index=True)
    """As it was typed, in lower case."""
    source = models.CharField(max_length=64, db_index=True)
    at = models.DateTimeField(auto_now_add=True, db_index=True)
