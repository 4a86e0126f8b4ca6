"""Providers, their credentials, routes and prices: the spec as its document has it, and look-up columns."""

from __future__ import annotations

from django.db import models

from controlplane.core.models import MAX_NAME, Resource

MAX_MODEL = 256


class ProviderCredential(Resource):
    """What a provider knows us by. The secret is encrypted and in no document."""

    type = models.CharField(max_length=32, db_index=True)
    secret = models.TextField(default="")
    """Fernet token; empty when there is no secret."""
    fingerprint = models.CharField(max_length=16, default="")
    """Tells secrets apart without telling them."""
    rotated_at = models.DateTimeField(null=True)
    spec = models.JSONField()
    """Without the secret."""


class Provider(Resource):
    """A service that serves models."""

    type = models.CharField(max_length=32, db_index=True)
    credential = models.CharField(max_length=MAX_NAME, default="", db_index=True)
    """Empty when there is none."""
    spec = models.JSONField()


class ModelRoute(Resource):
    """Which targets serve which models."""

    spec = models.JSONField()


class ModelRoutePattern(models.Model):
    """A model pattern, which belongs to one route."""

    route = models.ForeignKey(ModelRoute, on_delete=models.CASCADE, related_name="patterns")
    pattern = models.CharField(max_length=MAX_MODEL, unique=True)


class ModelRouteLink(models.Model):
    """A provider or a pool that a route names."""

    route = models.ForeignKey(ModelRoute, on_delete=models.CASCADE, related_name="links")
    provider = models.CharField(max_length=MAX_NAME, null=True, db_index=True)
    pool = models.CharField(max_length=MAX_NAME, null=True, db_index=True)
    """One of the two is None."""


class ModelPrice(Resource):
    """What a model costs at a provider or in a pool."""

    provider = models.CharField(max_length=MAX_NAME, default="", db_index=True)
    pool = models.CharField(max_length=MAX_NAME, default="", db_index=True)
    model = models.CharField(max_length=MAX_MODEL, db_index=True)
    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField(null=True)
    spec = models.JSONField()
