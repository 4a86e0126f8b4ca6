"""Sets of documents: planned and applied as a whole; exports that apply to nothing new."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.documents import Change, Step, apply, differences, export
from controlplane.core.errors import ForbiddenError, InvalidError, StaleError
from controlplane.core.models import AuditEntry
from controlplane.objectives.models import InferenceObjective
from tests.support.controlplane import OPERATOR, REWRITE, VIEWER, objective

pytestmark = pytest.mark.django_db


def refusal(documents: list[Any], actor: Any = OPERATOR) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        apply(actor, documents)
    return [f"{detail.path}: {detail.message}" for detail in caught.value.details]


def test_a_plan_says_what_applying_does_and_does_nothing() -> None:
    apply(OPERATOR, [objective()])
    documents = [REWRITE, objective(priority=7), objective("batch", priority=-1)]
    planned = apply(OPERATOR, documents, dry_run=True)
    assert not planned.applied
    assert planned.steps == [
        Step("InferenceModelRewrite", "chat", "create"),
        Step("InferenceObjective", "interactive", "update", [Change("spec.priority", 10, 7)]),
        Step("InferenceObjective", "batch", "create"),
    ]
    assert [row.priority for row in InferenceObjective.objects.all()] == [10]
    assert AuditEntry.objects.count() == 1

    done = apply(OPERATOR, documents)
    assert (done.applied, done.steps) == (True, planned.steps)
    assert {step.action for step in apply(OPERATOR, documents).steps} == {"unchanged"}
    assert AuditEntry.objects.count() == 4


def test_one_mistake_keeps_the_whole_set_out_and_all_mistakes_are_told() -> None:
    assert refusal([objective(), objective("batch", priority="low"), {"kind": "InferenceObjectiv"}, 3]) == [
        "documents[1].spec.priority: expected int, got str",
        (
            "documents[2].kind: 'InferenceObjectiv' is not known (did you mean \"InferenceObjective\"?); "
            "use one of InferencePool, EndpointList, InferenceObjective, InferenceModelRewrite, "
            "Tenant, VirtualKey, EndpointPickerConfig, PayloadProcessorConfig, ProviderCredential, Provider, "
            "ModelRoute, ModelPrice, GuardrailPolicy, Gateway"
        ),
        "documents[3]: must be a mapping with apiVersion, kind, metadata and spec",
    ]
    assert not InferenceObjective.objects.exists()
    assert not AuditEntry.objects.exists()


def test_an_object_is_in_a_set_once() -> None:
    assert refusal([objective(), objective(priority=3)]) == [
        "documents[1]: InferenceObjective interactive is in the set twice; a namespace makes no difference"
    ]
    assert not InferenceObjective.objects.exists()


def test_roles_hold_for_sets() -> None:
    for documents in ([objective()], [objective(priority="low")]):
        with pytest.raises(ForbiddenError) as caught:
            apply(VIEWER, documents)
        assert caught.value.message == "write of InferenceObjective needs the role operator; viewer is viewer"
    assert not InferenceObjective.objects.exists()


def test_a_set_that_is_only_too_late_is_refused_with_both_versions() -> None:
    apply(OPERATOR, [objective(), objective("batch")])
    late = [objective(version=7, priority=3), objective("batch", priority=4)]
    with pytest.raises(StaleError) as caught:
        apply(OPERATOR, late)
    assert (caught.value.expected, caught.value.found) == (7, 1)
    assert caught.value.current == objective(version=1)
    assert [detail.path for detail in caught.value.details] == ["documents[0]"]
    assert refusal([late[0], objective("other", priority="low")]) == [
        (
            "documents[0]: InferenceObjective interactive is at version 1, "
            "and the change is meant for version 7; read it again and repeat the change"
        ),
        "documents[1].spec.priority: expected int, got str",
    ]
    assert {row.version for row in InferenceObjective.objects.all()} == {1}


def test_an_export_can_be_applied_and_then_changes_nothing() -> None:
    apply(OPERATOR, [REWRITE, objective(), objective("batch", priority=-1)])
    found = export(VIEWER)
    assert [document["metadata"] for document in found] == [
        {"name": "batch"},
        {"name": "interactive"},
        {"name": "chat"},
    ]
    assert {step.action for step in apply(OPERATOR, found, dry_run=True).steps} == {"unchanged"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_nothing_differs_from_itself(value: Any) -> None:
    assert list(differences(value, value)) == []


def test_differences_are_told_leaf_by_leaf() -> None:
    before = {"a": [1, {"b": 2}], "gone": True}
    after = {"a": [1, {"b": 3}, 4], "new": "x"}
    assert list(differences(before, after)) == [
        Change("a[1].b", 2, 3),
        Change("a[2]", None, 4),
        Change("gone", True, None),
        Change("new", None, "x"),
    ]
