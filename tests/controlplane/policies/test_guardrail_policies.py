"""Guardrail policies as documents: judged rule by rule, bound to tenants and pools, and told as written."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controlplane.core.documents import apply, export
from controlplane.core.errors import ConflictError, InvalidError
from controlplane.core.kinds import KINDS
from controlplane.policies.models import GuardrailPolicy, PolicyLink
from tests.support.controlplane import GUARDRAILS, OPERATOR, POOL, TENANT, VIEWER, client

pytestmark = pytest.mark.django_db


def policy(*rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    document = copy.deepcopy(GUARDRAILS)
    document["spec"] = {"rules": list(rules) or document["spec"]["rules"], **spec}
    return document


def rule(kind: str, parameters: dict[str, Any] | None = None, **said: Any) -> dict[str, Any]:
    return {"name": "r", "type": kind, **({} if parameters is None else {"parameters": parameters}), **said}


def refusal(document: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        apply(OPERATOR, [document])
    assert not GuardrailPolicy.objects.exists()
    return [
        f"{detail.path}: {detail.message}".removeprefix("documents[0].spec.")
        for detail in caught.value.details
    ]


def test_a_policy_comes_back_as_it_went_in() -> None:
    documents = [POOL, TENANT, GUARDRAILS]
    assert apply(OPERATOR, documents).warnings == []
    assert export(VIEWER) == documents
    assert {step.action for step in apply(OPERATOR, documents).steps} == {"unchanged"}


@pytest.mark.parametrize(
    "good",
    [
        rule("keywords", {"words": ["zebra"], "wholeWords": False}, mode="mask", stages=["stream"]),
        rule("patterns", {"patterns": [r"\bzebra-\d+\b"], "caseSensitive": True}),
        rule("pii", {"entities": ["card", "secret"], "restore": False}, mode="flag"),
        rule("promptInjection"),
        rule("unicode", {"classes": ["tag"]}, mode="mask"),
        rule("maxInputTokens", {"tokens": 8000}),
        rule("maxOutputTokens", {"tokens": 1000}, mode="mask"),
        rule("parameters", {"ranges": {"temperature": {"max": 1}}, "allowedTools": []}),
        rule("parameters", {"forced": {"user": "x"}}, mode="mask"),
        rule("language", {"allowed": ["de", "en"]}, stages=["request", "response"]),
        rule("webhook", {"url": "https://guard.example/v1", "timeout": "300ms", "failurePolicy": "open"}),
        rule("judge", {"pool": "pool", "model": "llama", "instruction": "Is it rude?"}, stages=["response"]),
    ],
    ids=lambda rule: rule["type"],
)
def test_rules_of_every_type_are_kept_as_they_are(good: dict[str, Any]) -> None:
    apply(OPERATOR, [policy(good)])
    assert GuardrailPolicy.objects.get().spec == {"rules": [good]}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (rule("keywords"), "rules[0].parameters.words: is required"),
        (rule("keywords", {"words": []}), "rules[0].parameters.words: expected array of length >= 1"),
        (
            rule("patterns", {"patterns": ["ok", "(a"]}),
            "rules[0].parameters.patterns[1]: is no pattern of RE2: missing ): (a",
        ),
        (
            rule("patterns", {"patterns": [r"(?=a)b"]}),
            "rules[0].parameters.patterns[0]: is no pattern of RE2: invalid perl operator: (?=",
        ),
        (
            rule("patterns", {"patterns": ["a*"]}),
            "rules[0].parameters.patterns[0]: finds the empty text, and so everything",
        ),
        (rule("pii", {"entities": ["ip", "ip"]}), "rules[0].parameters.entities: names an entity twice"),
        (
            rule("promptInjection", stages=["stream"]),
            "rules[0].stages: stream is no stage of promptInjection; use request",
        ),
        (
            rule("maxInputTokens", {"tokens": 1}, mode="mask"),
            "rules[0].mode: mask is no mode of maxInputTokens; use block, flag",
        ),
        (rule("parameters", {}), "rules[0].parameters: says nothing about any field"),
        (rule("parameters", {"forced": {"n": 1}}), "rules[0].parameters.forced: goes with mode mask"),
        (rule("webhook", {"url": "ftp://x"}), "rules[0].parameters.url: is no http or https URL"),
        (
            rule("webhook", {"url": "http://u:p@x"}),
            "rules[0].parameters.url: holds a user or password; documents hold no secrets",
        ),
        (
            rule("webhook", {"url": "http://x", "timeout": "5m"}),
            "rules[0].parameters.timeout: is longer than 30s, and the client waits",
        ),
    ],
)
def test_mistakes_in_rules_are_told_with_their_place(wrong: dict[str, Any], problem: str) -> None:
    assert refusal(policy(wrong)) == [problem]


def test_all_mistakes_are_told_at_once() -> None:
    both = [rule("keywords"), {**rule("language", {"allowed": ["english"]}), "name": "s"}]
    assert [text.partition(":")[0] for text in refusal(policy(*both))] == [
        "rules[0].parameters.words",
        "rules[1].parameters.allowed[0]",
    ]
    assert refusal(policy(rule("promptInjection"), rule("promptInjection"))) == [
        "rules[1].name: rules[0] is called 'r' already"
    ]


def test_mistakes_behind_a_rule_that_cannot_be_read_keep_their_place() -> None:
    found = refusal(
        policy(
            rule("keyword", {"words": ["a"]}, name="a"),
            rule("patterns", {"patterns": ["("]}, name="b"),
            rule("nonsense", name="c"),
            rule("maxInputTokens", {"tokens": "many"}, name="d"),
        )
    )
    assert [each.partition(": ")[0] for each in sorted(found)] == [
        "rules[0].type",
        "rules[1].parameters.patterns[0]",
        "rules[2].type",
        "rules[3].parameters.tokens",
    ]


def test_named_tenants_and_pools_are_told_when_missing_and_kept_from_going() -> None:
    judged = rule("judge", {"pool": "other", "model": "llama", "instruction": "?"})
    early = apply(OPERATOR, [policy(judged, tenants=["research", "team-*"], pools=["pool"])])
    assert [warning.message.partition(" yet")[0] for warning in early.warnings] == [
        "there is no Tenant research",
        "there is no InferencePool other",
        "there is no InferencePool pool",
    ]
    apply(OPERATOR, [TENANT, POOL])
    tenants = KINDS.of("Tenant")
    assert tenants is not None
    with pytest.raises(ConflictError, match="is named by GuardrailPolicy baseline"):
        tenants.delete(OPERATOR, "research")
    assert client().get("/api/v1/guardrailpolicies?tenant=research").json()["total"] == 1
    assert client().get("/api/v1/guardrailpolicies?pool=elsewhere").json()["total"] == 0
    apply(OPERATOR, [policy()])
    assert not PolicyLink.objects.exists()
    tenants.delete(OPERATOR, "research")
