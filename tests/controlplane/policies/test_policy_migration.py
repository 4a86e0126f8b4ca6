"""Policies of before there were revisions are in force as they were, with a revision each."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

BEFORE = [("policies", "0003_move_processors"), ("configs", "0005_processors")]
SPEC: dict[str, Any] = {
    "priority": 7,
    "tenants": ["research"],
    "rules": [{"name": "w", "type": "keywords", "parameters": {"words": ["zébra"]}}],
}


def migrated(targets: list[tuple[str, str]]) -> Any:
    executor = MigrationExecutor(connection)
    executor.migrate(targets)
    return MigrationExecutor(connection).loader.project_state(targets).apps


@pytest.mark.django_db(transaction=True)
def test_each_policy_keeps_its_spec_links_and_version_and_stays_in_force() -> None:
    newest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    try:
        old = migrated(BEFORE)
        policy = old.get_model("policies", "GuardrailPolicy").objects.create(
            name="house", labels={"a": "b"}, version=4, priority=7, spec=SPEC
        )
        old.get_model("policies", "GuardrailPolicyLink").objects.create(policy=policy, tenant="research")
        migrated([node for node in newest if node[0] in {"policies", "configs"}])

        from controlplane.core.documents import export
        from controlplane.policies.models import GuardrailPolicy
        from controlplane.policies.sets import Wanted
        from tests.support.controlplane import VIEWER

        row = GuardrailPolicy.objects.get()
        assert (row.version, row.priority, row.spec) == (4, 7, SPEC)
        assert [(link.tenant, link.pool) for link in row.links.all()] == [("research", None)]
        (revision,) = row.revisions.all()
        (rollout,) = row.rollouts.all()
        assert row.active == revision == rollout.revision
        assert (revision.number, rollout.stage) == (1, "complete")
        assert row.created_at == policy.created_at
        assert [document for document in export(VIEWER) if document["kind"] == "GuardrailPolicy"] == [
            {
                "apiVersion": "pointsman.dev/v1",
                "kind": "GuardrailPolicy",
                "metadata": {"name": "house", "labels": {"a": "b"}},
                "spec": SPEC,
            }
        ]
        wanted = Wanted([("i-1", "edge")])
        assert wanted.of("i-1") == ((row.pk, 1),)
    finally:
        migrated(newest)
