"""Policies tried over the API: those that are here, and those that are not yet."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.core.documents import apply
from controlplane.core.roles import Role
from controlplane.policies.models import GuardrailPolicy
from tests.support.controlplane import ADMIN, client

pytestmark = pytest.mark.django_db

WHERE = "/api/v1/guardrails/test"


def policy(name: str, word: str, **spec: Any) -> dict[str, Any]:
    rule = {"name": name, "type": "keywords", "parameters": {"words": [word]}}
    return {
        "apiVersion": "pointsman.dev/v1",
        "kind": "GuardrailPolicy",
        "metadata": {"name": name},
        "spec": {"rules": [rule], **spec},
    }


def tried(text: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = client(Role.VIEWER).post(WHERE, {"trial": {"text": text}, **body}, format="json")
    assert answer.status_code == status, answer.json()
    found: dict[str, Any] = answer.json()
    return found


def test_all_policies_are_tried_or_those_that_are_named() -> None:
    apply(ADMIN, [policy("birds", "sparrow"), policy("fish", "herring")])
    found = tried("a sparrow", policies=["birds"])
    assert (found["action"], found["code"]) == ("block", "guardrail_keywords")
    assert found["verdicts"] == [
        {
            "policy": "birds",
            "rule": "birds",
            "type": "keywords",
            "kind": "word 0",
            "stage": "request",
            "action": "block",
            "path": "messages[0].content",
            "start": 2,
            "end": 9,
            "score": 1.0,
            "latencyUs": found["verdicts"][0]["latencyUs"],
        }
    ]
    assert tried("a herring", policies=["birds"])["action"] == "pass"
    assert tried("a herring")["action"] == "block"


def test_a_policy_is_tried_before_it_is_here_and_nothing_is_kept() -> None:
    apply(ADMIN, [policy("birds", "sparrow")])
    before = GuardrailPolicy.objects.count()
    assert tried("an eel", documents=[policy("new", "eel")])["verdicts"][0]["policy"] == "new"
    assert tried("a sparrow", documents=[policy("new", "eel")])["action"] == "pass"
    assert GuardrailPolicy.objects.count() == before


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"policies": ["bird"]}, "policies[0]"),
        ({"documents": [{"kind": "Tenant"}]}, "documents[0].apiVersion"),
        ({"documents": [policy("new", "")]}, "new.spec.rules[0].parameters.words[0]"),
        ({"trial": {"text": "a", "stage": "later"}}, "trial.stage"),
        ({"trial": {}}, "trial.text"),
        ({"trials": 1}, "trials"),
    ],
)
def test_what_cannot_be_tried_is_refused_with_its_path(body: dict[str, Any], path: str) -> None:
    apply(ADMIN, [policy("birds", "sparrow")])
    found = tried("x", 422, **body)
    assert path in [detail["path"] for detail in found["details"]]
