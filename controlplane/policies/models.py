"""What documents say, kept as they say it, and beside it what rows are looked up by."""

from __future__ import annotations

from django.db import models

from controlplane.core.models import MAX_NAME, Resource


class GuardrailPolicy(Resource):
    """What is looked for in which traffic, and what follows when it is found."""

    priority = models.IntegerField(default=0, db_index=True)
    spec = models.JSONField()


class GuardrailPolicyLink(models.Model):
    """A tenant or a pool that a policy names; wildcards name nobody."""

    policy = models.ForeignKey(GuardrailPolicy, on_delete=models.CASCADE, related_name="links")
    tenant = models.CharField(max_length=MAX_NAME, null=True, db_index=True)
    pool = models.CharField(max_length=MAX_NAME, null=True, db_index=True)
    """One of the two is None."""
