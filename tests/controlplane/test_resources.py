"""Services of configured kinds: documents in, rows kept, versions compared, everything audited."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.core.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    MissingError,
    StaleError,
)
from controlplane.core.models import AuditEntry
from controlplane.objectives.models import InferenceObjective
from controlplane.objectives.services import ModelRewriteService, ObjectiveService
from tests.support.controlplane import ADMIN, OPERATOR, REWRITE, VIEWER, objective

pytestmark = pytest.mark.django_db

SERVICE = ObjectiveService()


def problems(document: Any) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        SERVICE.create(OPERATOR, document)
    assert not InferenceObjective.objects.exists()
    return [f"{detail.path}: {detail.message}" for detail in caught.value.details]


def test_a_document_comes_back_as_it_was_written() -> None:
    row = SERVICE.create(OPERATOR, objective())
    shown = SERVICE.document(SERVICE.get(VIEWER, "interactive"))
    assert shown == objective(version=1)
    assert row.priority == 10
    rewrites = ModelRewriteService()
    assert rewrites.document(rewrites.create(OPERATOR, REWRITE))["spec"] == REWRITE["spec"]


def test_a_change_raises_the_version_and_an_empty_one_does_not() -> None:
    SERVICE.create(OPERATOR, objective())
    assert SERVICE.update(OPERATOR, "interactive", objective(version=1, priority=7)).version == 2
    assert SERVICE.update(OPERATOR, "interactive", objective(version=2, priority=7)).version == 2
    assert [entry.action for entry in AuditEntry.objects.all()] == ["update", "create"]


def test_a_change_of_another_version_is_refused_with_both() -> None:
    SERVICE.create(OPERATOR, objective())
    SERVICE.update(OPERATOR, "interactive", objective(priority=7))
    with pytest.raises(StaleError) as caught:
        SERVICE.update(OPERATOR, "interactive", objective(version=1, priority=3))
    assert (caught.value.expected, caught.value.found) == (1, 2)
    assert caught.value.current == objective(version=2, priority=7)
    assert SERVICE.get(VIEWER, "interactive").priority == 7
    with pytest.raises(StaleError):
        SERVICE.delete(OPERATOR, "interactive", 1)
    assert SERVICE.get(VIEWER, "interactive").version == 2


def test_everything_wrong_with_a_document_is_told_at_once_and_nothing_is_kept() -> None:
    document = objective() | {"apiVersion": "v1", "extra": 1}
    document["metadata"] = {"name": "Not A Name", "labels": {"a": 1}}
    document["spec"] = {"poolRef": {"nam": "p"}, "priority": "high"}
    assert problems(document) == [
        "extra: is no field of a document",
        "apiVersion: must be llm-d.ai/v1alpha2 or inference.networking.x-k8s.io/v1alpha2 or pointsman.dev/v1",
        "metadata.name: 'Not A Name' is no name; use lower-case letters, digits, - and ., at most 253",
        "metadata.labels: must be at most 64 pairs of text, each up to 317 characters long",
        'spec.poolRef.nam: unknown field (did you mean "name"?)',
        "spec.poolRef.name: is required",
        "spec.priority: expected int, got str",
    ]
    assert problems(objective() | {"metadata": None, "spec": []}) == [
        "metadata: must be a mapping with a name",
        "spec: must be a mapping",
    ]


def test_names_are_taken_once_and_stay() -> None:
    SERVICE.create(OPERATOR, objective())
    with pytest.raises(ConflictError, match="InferenceObjective interactive exists already"):
        SERVICE.create(OPERATOR, objective(priority=1))
    with pytest.raises(InvalidError, match="names stay"):
        SERVICE.update(OPERATOR, "interactive", objective("other"))
    with pytest.raises(MissingError, match="there is no InferenceObjective other"):
        SERVICE.update(OPERATOR, "other", objective("other"))
    assert SERVICE.get(VIEWER, "interactive").priority == 10


def test_viewers_read_and_change_nothing() -> None:
    SERVICE.create(OPERATOR, objective())
    for refused in (
        lambda: SERVICE.create(VIEWER, objective("other")),
        lambda: SERVICE.update(VIEWER, "interactive", objective(priority=1)),
        lambda: SERVICE.delete(VIEWER, "interactive"),
    ):
        with pytest.raises(ForbiddenError):
            refused()
    assert SERVICE.document(SERVICE.get(VIEWER, "interactive")) == objective(version=1)
    assert AuditEntry.objects.count() == 1


def test_the_audit_log_has_the_documents_before_and_after() -> None:
    SERVICE.create(ADMIN, objective())
    SERVICE.update(OPERATOR, "interactive", objective(priority=7))
    SERVICE.delete(OPERATOR, "interactive")
    deleted, updated, created = AuditEntry.objects.all()
    assert (created.actor, created.action, created.before) == ("admin", "create", None)
    assert (updated.actor, updated.before, updated.after) == (
        "operator",
        objective(version=1),
        objective(version=2, priority=7),
    )
    assert (deleted.action, deleted.after) == ("delete", None)
