"""Names of other objects: warned of or refused when nobody has them, and kept from dangling."""

from __future__ import annotations

import pytest

from controlplane.core.documents import apply
from controlplane.core.errors import ConflictError, InvalidError
from controlplane.core.models import AuditEntry
from controlplane.objectives.models import InferenceObjective
from controlplane.objectives.services import ObjectiveService
from controlplane.tenancy.models import VirtualKey
from controlplane.tenancy.services import VirtualKeyService
from tests.support.controlplane import OPERATOR, POOL, TENANT, client, example, objective

pytestmark = pytest.mark.django_db


def test_what_an_object_cannot_do_without_must_be_there() -> None:
    service = VirtualKeyService()
    with pytest.raises(InvalidError) as caught:
        service.create(OPERATOR, example("VirtualKey"))
    (detail,) = caught.value.details
    assert (detail.path, detail.message) == (
        "spec.tenant",
        "there is no Tenant research; make it first, or apply both together",
    )
    assert not VirtualKey.objects.exists()
    apply(OPERATOR, [TENANT])
    service.create(OPERATOR, example("VirtualKey"))
    changed = example("VirtualKey")
    changed["spec"]["tenant"] = "nobody"
    with pytest.raises(InvalidError):
        service.update(OPERATOR, "example", changed)
    assert VirtualKey.objects.get().tenant == "research"


def test_a_set_may_bring_what_it_needs_in_any_order() -> None:
    plan = apply(OPERATOR, [example("VirtualKey"), TENANT])
    assert [(step.kind, step.action) for step in plan.steps] == [
        ("VirtualKey", "create"),
        ("Tenant", "create"),
    ]


def test_what_it_can_do_without_is_a_warning() -> None:
    document = example("Tenant")
    document["spec"]["objective"] = "interactive"
    (warning,) = apply(OPERATOR, [document], dry_run=True).warnings
    assert (warning.path, warning.message) == (
        "documents[0].spec.objective",
        "there is no InferenceObjective interactive yet; until then this has no effect",
    )
    assert apply(OPERATOR, [document, POOL, objective()]).warnings == []


def test_what_is_named_stays_and_the_refusal_says_by_whom() -> None:
    documents = [example("Tenant", name) for name in ("a", "b")]
    for document in documents:
        document["spec"]["objective"] = "interactive"
    apply(OPERATOR, [objective(), *documents])
    entries = AuditEntry.objects.count()
    with pytest.raises(ConflictError) as caught:
        ObjectiveService().delete(OPERATOR, "interactive")
    assert (
        caught.value.message == "InferenceObjective interactive is named by Tenant a, b; delete these first"
    )
    assert (InferenceObjective.objects.count(), AuditEntry.objects.count()) == (1, entries)
    answer = client().delete("/api/v1/objectives/interactive", HTTP_IF_MATCH='"1"')
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    apply(OPERATOR, [example("Tenant", name) for name in ("a", "b")])
    ObjectiveService().delete(OPERATOR, "interactive")
    assert not InferenceObjective.objects.exists()
