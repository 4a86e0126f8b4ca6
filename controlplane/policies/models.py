"""Guardrail policies as documents with revisions, what they are looked up by, and the sets that were sent."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models

from controlplane.configs.content import parsed
from controlplane.configs.models import ConfigDocument, OfKind
from controlplane.core.models import MAX_NAME
from dataplane.config import guardrails

MAX_DIGEST = 64


class GuardrailPolicy(ConfigDocument):
    """What is looked for in which traffic, and what follows when it is found: the newest revision."""

    objects: ClassVar[Any] = OfKind(guardrails.KIND)

    class Meta(ConfigDocument.Meta):
        """Rows of the table of all configurations."""

        proxy = True
        constraints = []
        verbose_name_plural = "guardrail policies"

    @property
    def spec(self) -> dict[str, Any]:
        """As the newest revision says it, without what it does not say."""
        found: dict[str, Any] = parsed(self.content)["spec"]
        return found

    @property
    def priority(self) -> int:
        """Of the newest revision; the higher comes first."""
        return int(self.spec.get("priority", 0))


class PolicyLink(models.Model):
    """A tenant or a pool that a policy's newest revision names; wildcards name nobody."""

    policy = models.ForeignKey(ConfigDocument, on_delete=models.CASCADE, related_name="links")
    tenant = models.CharField(max_length=MAX_NAME, null=True, db_index=True)
    pool = models.CharField(max_length=MAX_NAME, null=True, db_index=True)
    """One of the two is None."""


class PolicySet(models.Model):
    """A set of revisions that processors were sent, so that their answers can be understood later."""

    digest = models.CharField(max_length=MAX_DIGEST, unique=True)
    """What the discovery stream knows it by."""
    members = models.JSONField()
    """``[[document, number, rollout], ...]``, the first and the last by key."""
    made_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        """Newest first."""

        ordering = ["-id"]
