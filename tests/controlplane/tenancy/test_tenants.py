"""Tenants: documents in and out, and what is wrong with them said with its path."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.core.documents import apply, export
from controlplane.core.errors import InvalidError
from controlplane.tenancy.models import Tenant
from controlplane.tenancy.services import TenantService
from tests.support.controlplane import OPERATOR, TENANT, VIEWER, example, objective

pytestmark = pytest.mark.django_db

SERVICE = TenantService()


def refused(**spec: Any) -> list[str]:
    document = example("Tenant")
    document["spec"] = spec
    with pytest.raises(InvalidError) as caught:
        SERVICE.create(OPERATOR, document)
    assert not Tenant.objects.exists()
    return [f"{detail.path}: {detail.message}" for detail in caught.value.details]


def test_a_tenant_comes_back_as_it_was_written() -> None:
    SERVICE.create(OPERATOR, TENANT)
    assert SERVICE.document(SERVICE.get(VIEWER, "research"))["spec"] == TENANT["spec"]
    empty = example("Tenant", "empty") | {"spec": {}}
    assert SERVICE.document(SERVICE.create(OPERATOR, empty))["spec"] == {}


def test_an_exported_tenant_applied_again_changes_nothing() -> None:
    apply(OPERATOR, [objective(), TENANT])
    assert {step.action for step in apply(OPERATOR, export(VIEWER), dry_run=True).steps} == {"unchanged"}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"fairnessWeight": 0}, "spec.fairnessWeight: expected int >= 1"),
        ({"allowedModels": []}, "spec.allowedModels: names no model; leave it out to allow every model"),
        ({"allowedModels": ["a", "a"]}, "spec.allowedModels: names a model twice"),
        (
            {"limits": {}},
            "spec.limits: limits nothing; give requestsPerMinute, tokensPerMinute or maxConcurrent",
        ),
        ({"limits": {"requestsPerMinute": 0}}, "spec.limits.requestsPerMinute: expected int >= 1"),
        ({"budgets": []}, "spec.budgets: has 0 budgets; give 1 to 8"),
        (
            {"budgets": [{"period": "day"}]},
            "spec.budgets[0].amount: must have either amount with currency, or tokens",
        ),
        (
            {"budgets": [{"period": "day", "amount": "1"}]},
            "spec.budgets[0].currency: goes with amount: both or neither",
        ),
        (
            {"budgets": [{"period": "day", "amount": "0.00", "currency": "EUR"}]},
            "spec.budgets[0].amount: must be more than nothing; to stop a tenant, suspend it",
        ),
        ({"budgets": [{"period": "day", "amount": 1.5, "currency": "EUR"}]}, "expected str, got float"),
        (
            {"budgets": [{"period": "day", "tokens": 1}, {"period": "day", "tokens": 2}]},
            "spec.budgets[1]: is a second hard budget of tokens per day",
        ),
        (
            {"budgets": [{"period": "day", "tokens": 1, "alertAtPercent": [80, 50]}]},
            "spec.budgets[0].alertAtPercent: must be 1 to 8 different percentages, the lowest first",
        ),
        ({"timeZone": "Mars/Olympus"}, "spec.timeZone: is no time zone known here"),
        ({"timeZone": "localtime"}, "spec.timeZone: is no time zone known here"),
        ({"timeZone": "../../etc/passwd"}, "spec.timeZone: is no time zone known here"),
        ({"requestsPerMinute": 5}, "spec.requestsPerMinute: unknown field"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(spec: dict[str, Any], problem: str) -> None:
    (found,) = [line for line in refused(**spec) if problem in line]
    assert found


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_what_no_database_keeps_is_refused(text: str) -> None:
    assert refused(displayName=text) == ["spec.displayName: holds what is no text: a NUL or half a character"]
    document = example("Tenant")
    document["metadata"]["labels"] = {"team": text}
    with pytest.raises(InvalidError, match=r"metadata\.labels\.team: holds what is no text"):
        SERVICE.create(OPERATOR, document)
    assert not Tenant.objects.exists()


@pytest.mark.parametrize("pattern", ["", "a*b", "*a", "a b", "a\n", "x" * 257])
def test_a_pattern_is_a_name_or_the_beginning_of_names(pattern: str) -> None:
    assert refused(allowedModels=[pattern])[0].startswith("spec.allowedModels[0]: expected str")
