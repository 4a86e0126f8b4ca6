"""InferenceObjective and InferenceModelRewrite."""

from __future__ import annotations

from django.db import models

from controlplane.core.models import MAX_NAME, Resource


class InferenceObjective(Resource):
    """A name that requests carry, and the priority it gives them in one pool."""

    pool = models.CharField(max_length=MAX_NAME, db_index=True)
    priority = models.IntegerField(null=True)


class InferenceModelRewrite(Resource):
    """Which models serve requests for which, in one pool."""

    pool = models.CharField(max_length=MAX_NAME, db_index=True)
    rules = models.JSONField()
    """``spec.rules`` of its document."""
