"""Configurations of payload processors as documents: judged whole, kept as written, versioned and audited."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controlplane.configs.models import ProcessorDocument
from controlplane.core.documents import Change, Step, apply, export
from controlplane.core.errors import InvalidError, StaleError
from controlplane.core.kinds import KINDS
from controlplane.core.models import AuditEntry
from tests.support.controlplane import OPERATOR, PROCESSOR, VIEWER, client

pytestmark = pytest.mark.django_db

ADDRESS = "/api/v1/payloadprocessorconfigs"


def processor(version: int | None = None, **sections: Any) -> dict[str, Any]:
    document = copy.deepcopy(PROCESSOR) | sections
    if version is not None:
        document["metadata"]["resourceVersion"] = str(version)
    return document


def refusal(document: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        apply(OPERATOR, [document])
    assert not ProcessorDocument.objects.exists()
    assert not AuditEntry.objects.exists()
    return [f"{detail.path}: {detail.message}" for detail in caught.value.details]


def test_a_configuration_comes_back_as_it_went_in() -> None:
    assert apply(OPERATOR, [PROCESSOR]).steps == [Step("PayloadProcessorConfig", "by-model", "create")]
    assert export(VIEWER) == [PROCESSOR]
    assert apply(OPERATOR, [PROCESSOR]).steps == [Step("PayloadProcessorConfig", "by-model", "unchanged")]
    assert client().get(f"{ADDRESS}/by-model").json() == processor(version=1)


@pytest.mark.parametrize("number", [1e100, 0.1, 1e-7, 2**53 + 1, 1.0])
def test_numbers_of_parameters_stay_what_they_are(number: float) -> None:
    document = processor()
    document["profiles"][0]["plugins"]["request"][0]["weight"] = number
    apply(OPERATOR, [document])
    assert export(VIEWER) == [document]
    assert [step.action for step in apply(OPERATOR, [document]).steps] == ["unchanged"]


def test_a_change_is_shown_value_by_value_and_kept_in_the_audit_log() -> None:
    apply(OPERATOR, [PROCESSOR])
    changed = processor()
    changed["plugins"][0]["parameters"]["fieldName"] = "user"
    change = Change("plugins[0].parameters.fieldName", "model", "user")
    assert apply(OPERATOR, [changed]).steps == [
        Step("PayloadProcessorConfig", "by-model", "update", [change])
    ]
    entry = AuditEntry.objects.get(action="update", kind="PayloadProcessorConfig")
    assert (entry.before, entry.after) == (
        processor(version=1),
        {**changed, "metadata": {**changed["metadata"], "resourceVersion": "2"}},
    )


def test_a_change_meant_for_another_version_is_refused() -> None:
    service = KINDS.of("PayloadProcessorConfig")
    assert service is not None
    apply(OPERATOR, [PROCESSOR])
    with pytest.raises(StaleError):
        service.update(OPERATOR, "by-model", processor(version=7, postProcessing={"plugins": []}))
    assert export(VIEWER) == [PROCESSOR]


def test_all_mistakes_are_told_with_their_paths_and_nothing_is_kept() -> None:
    document = processor(
        profilePicker={"pluginRef": "single-profile-piker"},
        profiles=[{"name": "a", "plugins": {"request": [{"pluginRef": "model-header", "wait": 1}]}}],
    )
    document["metadata"]["name"] = "By Model"
    assert [line.split(": ", 1)[0] for line in refusal(document)] == [
        "documents[0].metadata.name",
        "documents[0].profiles[0].plugins.request[0].wait",
        "documents[0].profilePicker.pluginRef",
    ]


def test_a_spec_is_no_section() -> None:
    [problem] = refusal({**processor(), "spec": {}})
    assert problem.startswith("documents[0].spec: unknown field; known here: plugins, preProcessing,")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("a\x00b", "documents[0].plugins[0].parameters.x: holds what is no text: a NUL or half a character"),
        (
            float("inf"),
            "documents[0]: holds what is no JSON: Out of range float values are not JSON compliant",
        ),
    ],
)
def test_what_databases_do_not_take_is_refused(value: Any, problem: str) -> None:
    document = processor()
    document["plugins"][0]["parameters"] = {"x": value}
    [found] = refusal(document)
    assert found.startswith(problem)


def test_the_list_is_filtered_by_name() -> None:
    apply(OPERATOR, [PROCESSOR])
    assert client().get(f"{ADDRESS}?name=by-model").json()["total"] == 1
    assert client().get(f"{ADDRESS}?name=other").json()["total"] == 0
