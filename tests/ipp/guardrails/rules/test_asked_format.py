"""What requests of each API ask their answers to be."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.errors import ConfigError
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.policies import Policies
from ipp.guardrails.rules.asked_format import asked_schema
from tests.support.guardrail_rules import made

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
ASKED: dict[str, dict[str, Any]] = {
    "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    "responses": {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}},
    "anthropic": {"output_format": {"type": "json_schema", "schema": SCHEMA}},
    "anthropic config": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "gemini": {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}},
    "vllm": {"guided_json": SCHEMA},
    "vllm structured": {"structured_outputs": {"json": SCHEMA}},
    "ollama": {"format": SCHEMA},
}


@pytest.mark.parametrize("body", ASKED.values(), ids=ASKED)
def test_every_apis_schema_is_read(body: dict[str, Any]) -> None:
    assert asked_schema(body) == SCHEMA


@pytest.mark.parametrize(
    ("body", "schema"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": "json"}, None),
        ({"text": {"format": {"type": "text"}}}, None),
        ({"response_format": {"type": "json_object"}}, {"type": "object"}),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, {}),
        ({"format": "json"}, {}),
        ({"format": "wav"}, None),
        ({"generationConfig": {"responseMimeType": "application/json"}}, {}),
        (
            {
                "generationConfig": {
                    "responseSchema": {
                        "type": "OBJECT",
                        "properties": {
                            "type": {"type": "STRING", "nullable": True, "enum": ["A", "B"]},
                            "list": {"type": "ARRAY", "items": {"type": "NUMBER"}},
                        },
                    }
                }
            },
            {
                "type": "object",
                "properties": {
                    "type": {"type": ["string", "null"], "enum": ["A", "B", None]},
                    "list": {"type": "array", "items": {"type": "number"}},
                },
            },
        ),
    ],
)
def test_other_ways_to_ask_for_json(body: dict[str, Any], schema: Any) -> None:
    assert asked_schema(body) == schema


def compiled(**parameters: Any) -> CompiledPolicy:
    rule = {"name": "s", "type": "jsonSchema", "stages": ["response"], "parameters": parameters}
    found = Policies([("a", msgspec.convert({"rules": [rule]}, GuardrailPolicySpec))]).select("", "", "")
    assert found is not None
    return found


def answered(policy: CompiledPolicy, asked: dict[str, Any], text: str) -> list[str]:
    """Kinds of what is found in the answer to a request."""
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **asked}
    outcome = policy.check_request(json.dumps(request).encode())
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = json.dumps({"object": "chat.completion", "choices": [choice]}).encode()
    found = policy.check_response(body, outcome.vault)
    assert (found.action == "block") == bool(found.verdicts)
    return [verdict.kind for verdict in found.verdicts]


def test_the_answer_is_held_to_what_its_own_request_asks_for() -> None:
    policy = compiled(fromRequest=True)
    asked = ASKED["chat"]
    assert answered(policy, asked, '{"n": 1}') == []
    assert answered(policy, asked, '{"n": "1"}') == ["schema"]
    assert answered(policy, asked, "Sure! Here is your JSON:") == ["json"]
    assert answered(policy, {}, "Sure!") == []
    assert answered(policy, {"response_format": {"type": "json_object"}}, "[]") == ["schema"]
    assert answered(policy, {"response_format": {"type": "json_object"}}, "{}") == []


def test_the_policys_schema_holds_beside_it() -> None:
    policy = compiled(fromRequest=True, schema={"maxProperties": 1})
    assert answered(policy, ASKED["chat"], '{"n": 1}') == []
    assert answered(policy, ASKED["chat"], '{"n": 1, "m": 2}') == ["schema"]
    assert answered(policy, {}, '{"k": 1}') == []
    assert answered(policy, {}, "prose") == ["json"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.com/x"},
        {"type": "nonsense"},
        {"pattern": "(?=look)"},
        {"enum": list(range(10_001))},
    ],
    ids=["leaves the document", "is none", "a pattern that is not linear", "too large"],
)
def test_a_schema_that_nobody_can_judge_by_has_its_answer_refused(schema: dict[str, Any]) -> None:
    asked = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    assert answered(compiled(fromRequest=True), asked, "{}") == ["unusable"]


def test_one_of_both_must_be_said() -> None:
    with pytest.raises(ConfigError) as refused:
        made("jsonSchema", {}, stages=["response"])
    assert str(refused.value).endswith("says of no schema; give schema or fromRequest: true")
