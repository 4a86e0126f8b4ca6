"""Picker configurations as documents: judged by the picker's code, with revisions that never change."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from controlplane.configs.models import ConfigDocument, ConfigRevision, PoolBinding, Rollout
from controlplane.configs.services import PickerConfigService
from controlplane.core.documents import Change, Step, apply, export
from controlplane.core.errors import ConflictError, InvalidError
from tests.support.controlplane import OPERATOR, VIEWER, objective, picker_config

pytestmark = pytest.mark.django_db

SERVICE = PickerConfigService()


def problems(document: Any) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        SERVICE.create(OPERATOR, document)
    assert not ConfigDocument.objects.exists()
    return [f"{detail.path}: {detail.message}" for detail in caught.value.details]


def test_a_document_comes_back_as_it_was_written() -> None:
    document = picker_config(pools="b,a", rollout="10%", comment="first try")
    row = SERVICE.create(OPERATOR, document)
    document["metadata"]["resourceVersion"] = "1"
    assert SERVICE.document(SERVICE.get(VIEWER, "standard")) == document
    assert set(PoolBinding.objects.values_list("pool", flat=True)) == {"a", "b"}
    (revision,) = row.revisions.all()
    del document["metadata"]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert (revision.number, revision.content, revision.author) == (1, text, "operator")
    assert (revision.digest, revision.comment) == (hashlib.sha256(text.encode()).hexdigest(), "first try")
    assert not Rollout.objects.exists(), "a draft"


def test_both_versions_are_the_same_content() -> None:
    row = SERVICE.create(OPERATOR, picker_config())
    old = picker_config() | {"apiVersion": "inference.networking.x-k8s.io/v1alpha1"}
    assert SERVICE.update(OPERATOR, "standard", old).version == 1
    assert row.revisions.count() == 1


def test_only_another_content_makes_a_revision() -> None:
    SERVICE.create(OPERATOR, picker_config())
    assert SERVICE.update(OPERATOR, "standard", picker_config(pools="x", comment="why")).version == 2
    row = SERVICE.update(OPERATOR, "standard", picker_config(5, pools="x", comment="more"))
    assert [(r.number, r.comment) for r in row.revisions.all()] == [(2, "more"), (1, "")]
    assert row.revisions.first().parent.number == 1  # type: ignore[union-attr]
    assert list(PoolBinding.objects.values_list("pool", flat=True)) == ["x"]


def test_revisions_are_never_changed() -> None:
    row = SERVICE.create(OPERATOR, picker_config())
    revision = ConfigRevision.objects.get(document=row)
    revision.content = "{}"
    with pytest.raises(ValueError, match="never changed"):
        revision.save()


def test_the_pickers_own_code_tells_every_mistake_with_its_path() -> None:
    document = picker_config(-1, pools="pool,Not A Name", rollout="half", commnt="x")
    document["plugins"][0]["type"] = "queue-scorr"
    document["plugins"][1]["parameters"] = {"what": 1}
    document["extra"] = 1
    told = problems(document)
    assert [line.partition(": ")[0] for line in told] == [
        "metadata.annotations[pointsman.dev/commnt]",
        "metadata.annotations[pointsman.dev/pools]",
        "metadata.annotations[pointsman.dev/rollout]",
        "extra",
        "schedulingProfiles[0].plugins[0].weight",
        "plugins[0]",
        "plugins[1].parameters.what",
        "schedulingProfiles[0].plugins[0].pluginRef",
    ]
    assert 'did you mean "queue-scorer"' in told[5]


@pytest.mark.parametrize("value", [float("nan"), "\x00", "\ud800", {1, 2}])
def test_what_no_database_keeps_is_refused(value: Any) -> None:
    document = picker_config()
    document["plugins"][0]["parameters"] = {"x": value}
    (told,) = problems(document)
    assert "holds what is no " in told


def test_deep_nesting_is_refused() -> None:
    value: Any = 1
    for _ in range(5000):
        value = [value]
    document = picker_config()
    document["plugins"][0]["parameters"] = {"x": value}
    (told,) = problems(document)
    assert "holds what is no JSON" in told


def test_plugins_of_alpha_stability_are_left_to_the_workers() -> None:
    document = picker_config()
    document["plugins"].append({"type": "topology-affinity-scorer"})
    row = SERVICE.create(OPERATOR, document)
    assert SERVICE.spec_of(row)["plugins"][-1] == {"type": "topology-affinity-scorer"}


def test_a_pool_has_one_configuration() -> None:
    SERVICE.create(OPERATOR, picker_config(pools="a,b"))
    with pytest.raises(
        ConflictError, match="the pool b is configured by EndpointPickerConfig standard already"
    ):
        SERVICE.create(OPERATOR, picker_config(pools="b,c", name="other"))
    assert ConfigDocument.objects.count() == 1
    assert ConfigRevision.objects.count() == 1


def test_applying_publishes_what_changed_and_only_that() -> None:
    apply(OPERATOR, [picker_config(), objective()])
    (first,) = Rollout.objects.all()
    assert (first.stage, first.revision.number) == ("complete", 1)
    again = apply(OPERATOR, [picker_config()])
    assert again.steps == [Step("EndpointPickerConfig", "standard", "unchanged")]
    changed = apply(OPERATOR, [picker_config(5)])
    change = Change("schedulingProfiles[0].plugins[0].weight", 2, 5)
    assert changed.steps == [Step("EndpointPickerConfig", "standard", "update", [change])]
    assert [rollout.revision.number for rollout in Rollout.objects.all()] == [2, 1]
    row = ConfigDocument.objects.get()
    assert (row.active.number if row.active else None) == 2


def test_a_dry_run_publishes_nothing() -> None:
    apply(OPERATOR, [picker_config()], dry_run=True)
    assert not Rollout.objects.exists()
    assert not ConfigRevision.objects.exists()


def test_the_document_says_how_applying_publishes_it() -> None:
    apply(OPERATOR, [picker_config(rollout="manual")])
    assert not Rollout.objects.exists()
    apply(OPERATOR, [picker_config(rollout="25%")])
    (rollout,) = Rollout.objects.all()
    assert (rollout.stage, rollout.canary_share) == ("canary", 0.25)
    with pytest.raises(InvalidError, match="nothing is applied") as caught:
        apply(OPERATOR, [picker_config(5)])
    assert caught.value.details[0].message == (
        "revision 1 is being rolled out (canary); promote it, halt it or roll it back first"
    )
    assert ConfigRevision.objects.count() == 1


def test_an_export_applied_elsewhere_changes_nothing_here() -> None:
    apply(OPERATOR, [picker_config(comment="why"), objective()])
    found = export(VIEWER)
    assert picker_config(comment="why") in found
    assert {step.action for step in apply(OPERATOR, found, dry_run=True).steps} == {"unchanged"}
