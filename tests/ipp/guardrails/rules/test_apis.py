"""Parameters and limits in every API: each request as clients write it, and what policies make of it."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

import msgspec
import pytest

from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.errors import RequestError
from dataplane.extproc.exchange import HttpRequest
from dataplane.headers import Headers
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.matches import Facts
from ipp.guardrails.policies import Policies
from ipp.guardrails.rules.fields import model_in_path
from ipp.policies import PolicyHolder
from tests.support.guardrail_rules import made
from tests.support.processors import Rig, one_profile

SEARCH, SHELL = "search", "shell"


class Api(NamedTuple):
    """A request of an API, with too much of everything, and what is left of it under the policy below."""

    path: str
    request: dict[str, Any]
    left: dict[str, Any]
    found: list[tuple[str, str]]


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {}}}


CHAT = {"model": "llama-3", "messages": [{"role": "user", "content": "hi"}]}
APIS: dict[str, Api] = {
    "chat": Api(
        "/v1/chat/completions",
        CHAT
        | {"tools": [function(SEARCH), function(SHELL)], "tool_choice": function(SHELL)}
        | {"temperature": 1.9, "max_completion_tokens": 5000, "logit_bias": {"1": 100}},
        CHAT | {"tools": [function(SEARCH)], "temperature": 1, "max_completion_tokens": 100, "seed": 7},
        [
            ("tools[1].function.name", "tool"),
            ("tool_choice.function.name", "tool"),
            ("temperature", "outOfRange"),
            ("logit_bias", "forbidden"),
            ("seed", "forced"),
            ("max_completion_tokens", "tooMany"),
        ],
    ),
    "completions": Api(
        "/v1/completions",
        {"model": "llama-3", "prompt": ["a", "b"], "temperature": -1, "seed": 3},
        {"model": "llama-3", "prompt": ["a", "b"], "temperature": 0, "seed": 7, "max_tokens": 100},
        [("temperature", "outOfRange"), ("seed", "forced"), ("max_tokens", "missing")],
    ),
    "responses": Api(
        "/v1/responses",
        {
            "model": "llama-3",
            "input": "hi",
            "tools": [{"type": "function", "name": SHELL}, {"type": "web_search"}],
            "tool_choice": {"type": "function", "name": SHELL},
            "max_output_tokens": 101,
        },
        {"model": "llama-3", "input": "hi", "max_output_tokens": 100, "seed": 7},
        [
            ("tools[0].name", "tool"),
            ("tools[1].type", "tool"),
            ("tool_choice.name", "tool"),
            ("seed", "forced"),
            ("max_output_tokens", "tooMany"),
        ],
    ),
    "anthropic": Api(
        "/v1/messages",
        CHAT
        | {
            "system": "be brief",
            "tools": [{"name": SEARCH, "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}],
            "tool_choice": {"type": "tool", "name": "bash"},
            "mcp_servers": [{"type": "url", "name": SHELL, "url": "https://mcp.example"}],
            "thinking": {"type": "enabled", "budget_tokens": 2000},
            "temperature": 1.5,
            "max_tokens": 4000,
        },
        CHAT
        | {
            "system": "be brief",
            "tools": [{"name": SEARCH, "input_schema": {}}],
            "thinking": {"type": "disabled"},
            "temperature": 1,
            "max_tokens": 100,
            "seed": 7,
        },
        [
            ("tools[1].name", "tool"),
            ("mcp_servers[0].name", "tool"),
            ("tool_choice.name", "tool"),
            ("temperature", "outOfRange"),
            ("seed", "forced"),
            ("max_tokens", "tooMany"),
            ("thinking.budget_tokens", "tooMany"),
        ],
    ),
    "gemini": Api(
        "/v1beta/models/llama-3:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "tools": [{"functionDeclarations": [{"name": SEARCH}]}, {"codeExecution": {}}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [SEARCH, SHELL]}},
            "generationConfig": {"temperature": 2, "maxOutputTokens": 999, "seed": 1},
        },
        {
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "tools": [{"functionDeclarations": [{"name": SEARCH}]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [SEARCH]}},
            "generationConfig": {"temperature": 1, "maxOutputTokens": 100, "seed": 7},
        },
        [
            ("tools[1].codeExecution", "tool"),
            ("toolConfig.functionCallingConfig.allowedFunctionNames", "tool"),
            ("generationConfig.temperature", "outOfRange"),
            ("generationConfig.seed", "forced"),
            ("generationConfig.maxOutputTokens", "tooMany"),
        ],
    ),
    "bedrock": Api(
        "/model/llama-3/converse",
        {"messages": [{"role": "user", "content": [{"text": "hi"}]}], "inferenceConfig": {"temperature": 3}},
        {
            "messages": [{"role": "user", "content": [{"text": "hi"}]}],
            "inferenceConfig": {"temperature": 1, "seed": 7, "maxTokens": 100},
        },
        [
            ("inferenceConfig.temperature", "outOfRange"),
            ("seed", "forced"),
            ("inferenceConfig.maxTokens", "missing"),
        ],
    ),
    "embeddings": Api(
        "/v1/embeddings",
        {"model": "llama-3", "input": ["a", "b"], "dimensions": 8},
        {"model": "llama-3", "input": ["a", "b"], "dimensions": 8, "seed": 7},
        [("seed", "forced")],
    ),
}
APIS["bedrock"].left["inferenceConfig"].pop("seed")
APIS["bedrock"].left["seed"] = 7


def policy(mode: str) -> CompiledPolicy:
    """The same rules for all, masking or blocking."""
    limits: dict[str, Any] = {
        "allowedModels": ["llama-*"],
        "allowedTools": [SEARCH],
        "ranges": {"temperature": {"min": 0, "max": 1}},
        "forbidden": ["logit_bias"],
    } | ({"forced": {"seed": 7}} if mode == "mask" else {})
    rules = [
        {"name": "limits", "type": "parameters", "mode": mode, "parameters": limits},
        {"name": "length", "type": "maxOutputTokens", "mode": mode, "parameters": {"tokens": 100}},
    ]
    spec = msgspec.convert({"rules": rules}, GuardrailPolicySpec)
    found = Policies([("p", spec)]).select("", "", "")
    assert found is not None
    return found


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
def test_masking_brings_a_request_within_its_limits_and_finds_nothing_the_second_time(api: Api) -> None:
    rules = policy("mask")
    outcome = rules.check_request(json.dumps(api.request).encode(), Facts(path=api.path))
    assert [(each.path, each.kind) for each in outcome.verdicts] == api.found
    assert outcome.action == "mask"
    assert json.loads(outcome.body) == api.left
    again = rules.check_request(outcome.body, Facts(path=api.path))
    assert (again.action, again.body is outcome.body) == ("pass", True)


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
def test_blocking_refuses_what_is_beyond_the_limits_and_nothing_else(api: Api) -> None:
    rules = policy("block")
    beyond = [each for each in api.found if each[1] not in ("forced", "missing")]
    beyond = [each for each in beyond if each[0] != "thinking.budget_tokens"]
    outcome = rules.check_request(json.dumps(api.request).encode(), Facts(path=api.path))
    assert [(each.path, each.kind) for each in outcome.verdicts] == beyond
    assert (outcome.action == "block", outcome.status) == (bool(beyond), 400 if beyond else 200)
    if beyond:
        type_ = "parameters" if outcome.verdicts[0].type == "parameters" else "max_output_tokens"
        assert (outcome.code, outcome.param) == (f"guardrail_{type_}", beyond[0][0])
    within = rules.check_request(json.dumps(api.left).encode(), Facts(path=api.path))
    assert within.action == "pass"


def test_a_budget_for_thinking_stays_below_the_limit_where_the_api_takes_it() -> None:
    rule = {"name": "l", "type": "maxOutputTokens", "mode": "mask", "parameters": {"tokens": 3000}}
    found = Policies([("p", msgspec.convert({"rules": [rule]}, GuardrailPolicySpec))]).select("", "", "")
    assert found is not None
    body = CHAT | {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 8000}}
    left = json.loads(found.check_request(json.dumps(body).encode(), Facts(path="/v1/messages")).body)
    assert (left["max_tokens"], left["thinking"]["budget_tokens"]) == (3000, 2999)


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1beta/models/gemini-pro:streamGenerateContent?alt=sse", "gemini-pro"),
        ("/v1/projects/p/locations/l/publishers/google/models/gemini-pro:generateContent", "gemini-pro"),
        ("/model/anthropic.claude-v1:0/invoke", "anthropic.claude-v1:0"),
        ("/model/arn%3Aaws%3Ax/converse", "arn:aws:x"),
        ("/openai/deployments/prod/chat/completions?api-version=1", "prod"),
        ("/v1/chat/completions", ""),
        ("/v1/models", ""),
        ("", ""),
    ],
)
def test_some_paths_name_a_model(path: str, model: str) -> None:
    assert model_in_path(path) == model


def test_every_model_that_a_request_names_must_be_allowed() -> None:
    rule = made("parameters", {"allowedModels": ["llama-*"]})
    gemini, chat = "/v1beta/models/gemini-pro:generateContent", "/v1/chat/completions"
    llama = "/v1beta/models/llama-3:generateContent"

    def allowed(body: dict[str, Any], path: str) -> bool:
        return not rule.check(body, Facts(path=path))

    assert [allowed({"contents": []}, path) for path in (llama, gemini, chat)] == [True, False, False]
    assert [allowed({"model": "llama-3"}, path) for path in (llama, gemini, chat)] == [True, False, True]
    assert [allowed({"model": "gpt"}, path) for path in (llama, gemini, chat)] == [False, False, False]


def test_a_forced_field_is_set_where_its_api_has_it_and_wherever_else_it_is() -> None:
    rule = made("parameters", {"forced": {"temperature": 0, "extra.safe": True}}, mode="mask")

    def changes(body: dict[str, Any]) -> dict[str, Any]:
        return {match.path: match.changes[0].value for match in rule.check(body, Facts())}

    assert changes({"messages": []}) == {"temperature": 0, "extra.safe": True}
    assert changes({"contents": [], "extra": {"safe": True}}) == {"generationConfig.temperature": 0}
    assert changes({"temperature": 0, "options": {"temperature": 1}, "extra": {"safe": True}}) == {
        "options.temperature": 0
    }


def test_policies_of_a_model_hold_for_requests_that_name_it_in_their_path() -> None:
    rule = {"name": "w", "type": "keywords", "parameters": {"words": ["zebra"]}}
    spec = msgspec.convert({"models": ["gemini-*"], "rules": [rule]}, GuardrailPolicySpec)
    holder = PolicyHolder(random.Random(1))
    holder.put(Policies([("p", spec)]), ["p"], "1")
    rig = Rig(one_profile([{"type": "guardrails"}]), holder)
    body = json.dumps({"contents": [{"parts": [{"text": "a zebra"}]}]}).encode()

    def ask(model: str) -> None:
        headers = Headers.of([(":method", "POST"), (":path", f"/v1beta/models/{model}:generateContent")])
        rig.handler.open().on_request(HttpRequest(headers, body, None), rig.later.append)

    ask("llama-3")
    with pytest.raises(RequestError) as refused:
        ask("gemini-pro")
    assert refused.value.client_code == "guardrail_keywords"
