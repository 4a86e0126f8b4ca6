"""Guardrail policies become documents whose first revision is in force, as it was."""

import hashlib
import json
from typing import Any

from django.db import migrations
from django.utils import timezone

KIND = "GuardrailPolicy"
SYSTEM = "system"
COMMENT = "kept from before there were revisions"


def move(apps: Any, schema_editor: Any) -> None:
    """Each policy with its links; what processors enforce stays the same."""
    documents = apps.get_model("configs", "ConfigDocument")
    revisions = apps.get_model("configs", "ConfigRevision")
    rollouts = apps.get_model("configs", "Rollout")
    links = apps.get_model("policies", "PolicyLink")
    for old in apps.get_model("policies", KIND).objects.order_by("name"):
        said = {"apiVersion": "pointsman.dev/v1", "kind": KIND, "spec": old.spec}
        content = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        row = documents.objects.create(
            kind=KIND, name=old.name, labels=old.labels, version=old.version, content=content, comment=""
        )
        revision = revisions.objects.create(
            document=row,
            number=1,
            content=content,
            digest=hashlib.sha256(content.encode()).hexdigest(),
            author=SYSTEM,
            comment=COMMENT,
        )
        rollouts.objects.create(
            document=row,
            revision=revision,
            stage="complete",
            author=SYSTEM,
            comment=COMMENT,
            ended_at=timezone.now(),
        )
        documents.objects.filter(pk=row.pk).update(
            active=revision, created_at=old.created_at, updated_at=old.updated_at
        )
        links.objects.bulk_create(
            links(policy=row, tenant=link.tenant, pool=link.pool) for link in old.links.order_by("pk")
        )


class Migration(migrations.Migration):
    dependencies = [("policies", "0004_documents")]

    operations = [migrations.RunPython(move, migrations.RunPython.noop)]
