"""Tenant and VirtualKey: the spec as its document has it, and beside it what rows are looked up by."""

from __future__ import annotations

from django.db import models

from controlplane.core.models import MAX_NAME, Resource


class Tenant(Resource):
    """Who sends requests: limits, budgets and a share of busy pools."""

    objective = models.CharField(max_length=MAX_NAME, default="", db_index=True)
    """Empty when there is none."""
    spec = models.JSONField()


class VirtualKey(Resource):
    """Lets clients send requests for a tenant. Of the key itself only a digest is kept."""

    tenant = models.CharField(max_length=MAX_NAME, db_index=True)
    objective = models.CharField(max_length=MAX_NAME, default="", db_index=True)
    """Empty when there is none."""
    digest = models.CharField(max_length=64, unique=True)
    """SHA-256 of the whole key, hexadecimal; a key has 256 random bits, so no salt is needed."""
    previous_digest = models.CharField(max_length=64, null=True, unique=True)
    """The key before it; None when there is none."""
    prefix = models.CharField(max_length=24, default="", db_index=True)
    spec = models.JSONField()
    last_used_at = models.DateTimeField(null=True)
