"""Gateways."""

from __future__ import annotations

from django.db import models

from controlplane.core.models import MAX_NAME, Resource


class Gateway(Resource):
    """What the Envoys of one gateway have in common."""

    spec = models.JSONField()
    """As its document has it, defaults included."""
    credential = models.CharField(max_length=MAX_NAME, default="", db_index=True)
    """Of its TLS; empty = no TLS."""
