"""`pointsman guard test` with policies of files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main

POLICY = """
apiVersion: pointsman.dev/v1
kind: GuardrailPolicy
metadata: {name: house}
spec:
  rules:
  - {name: birds, type: keywords, parameters: {words: [sparrow]}}
  - {name: mail, type: pii, mode: mask, parameters: {entities: [email], restore: false}}
"""


@pytest.fixture
def policy(tmp_path: Path) -> str:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return str(file)


def test_a_text_shows_every_match(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guard", "test", "-f", policy, "see the sparrow"]) == 0
    assert capsys.readouterr().out == (
        "action: block\n"
        "code:   guardrail_keywords\n"
        "client: The request is against the guardrail 'birds'.\n"
        "    house/birds: word 0 at messages[0].content[8:15]: block\n"
    )


def test_a_message_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("type: keywords,", 'type: keywords, message: "a\\e[31mb",'))
    assert main(["guard", "test", "-f", str(file), "see the sparrow"]) == 0
    assert "client: a\ufffd[31mb\n" in capsys.readouterr().out


def test_json_is_one_object(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guard", "test", "-f", policy, "--json", "mail ada@example.org"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["action"], found["verdicts"][0]["kind"]) == ("mask", "email")
    assert "ada@example.org" not in found["text"]


def test_a_corpus_is_counted_and_what_is_not_as_expected_is_shown(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    lines = [
        {"text": "a sparrow", "expect": "block"},
        {"text": "a herring", "expect": "pass"},
        {"text": "a sparrow", "expect": "pass"},
        {"text": "ada@example.org", "stage": "stream"},
    ]
    corpus.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert main(["guard", "test", "-f", policy, "--corpus", str(corpus)]) == 1
    assert capsys.readouterr().out == (
        "line 3: expected pass, found block\n"
        "    house/birds: word 0 at messages[0].content[2:9]: block\n"
        "4 texts: 2 pass, 0 flag, 0 mask, 2 block\n"
        "    house/birds: 2\n"
        "1 not as expected\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give a text, a body with --body, or a corpus with --corpus"),
        (["a", "--corpus", "b"], "give a text, a body with --body, or a corpus with --corpus"),
        (["a", "--policy", "p"], "--policy names policies of the control plane; leave it out with -f"),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    policy: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["guard", "test", "-f", policy, *words]) == 1
    assert capsys.readouterr().err == f"pointsman guard: error: {said}\n"


def test_a_policy_with_mistakes_is_refused_with_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("[sparrow]", "[]").replace("[email]", "[emial]"))
    assert main(["guard", "test", "-f", str(file), "x"]) == 1
    said = capsys.readouterr().err
    assert "house.spec.rules[0].parameters.words" in said
    assert "house.spec.rules[1].parameters.entities[0]" in said


LIMITS = """
apiVersion: pointsman.dev/v1
kind: GuardrailPolicy
metadata: {name: limits}
spec:
  rules:
  - {name: birds, type: keywords, parameters: {words: [sparrow]}, stages: [request, response]}
  - {name: mail, type: pii, mode: mask, parameters: {entities: [email]}}
  - {name: length, type: maxOutputTokens, mode: mask, parameters: {tokens: 100}}
  - {name: models, type: parameters, parameters: {allowedModels: ["m*"]}}
  - {name: shape, type: jsonSchema, stages: [response], parameters: {fromRequest: true}}
"""
USER = {"role": "user", "content": "write to ada@example.org"}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [USER]},
    "completions": {"model": "m", "prompt": ["write to ada@example.org"]},
    "responses": {"model": "m", "input": [{"role": "user", "content": "write to ada@example.org"}]},
    "messages": {"model": "m", "system": "hi", "messages": [USER]},
    "gemini": {"contents": [{"parts": [{"text": "write to ada@example.org"}]}]},
    "embeddings": {"model": "m", "input": "write to ada@example.org"},
}
LIMIT = {
    "chat": ["max_tokens"],
    "completions": ["max_tokens"],
    "responses": ["max_output_tokens"],
    "messages": ["max_tokens"],
    "gemini": ["generationConfig", "maxOutputTokens"],
    "embeddings": [],
}


@pytest.mark.parametrize("dialect", BODIES)
def test_a_body_of_every_api_is_tried_as_it_would_be_sent(
    dialect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies, body = tmp_path / "limits.yaml", tmp_path / "body.json"
    policies.write_text(LIMITS)
    body.write_text(json.dumps(BODIES[dialect]))
    words = ["guard", "test", "-f", str(policies), "--dialect", dialect, "--body", str(body), "--json"]
    assert main([*words, "--model", "m"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["action"] == "mask"
    assert "ada@example.org" not in json.dumps(found["body"])
    assert "<EMAIL_1>" in json.dumps(found["body"])
    value: Any = found["body"]
    for key in LIMIT[dialect]:
        value = value[key]
    assert value == (100 if LIMIT[dialect] else found["body"])
    assert [each["kind"] for each in found["verdicts"]] == ["missing"] * bool(LIMIT[dialect]) + ["email"]
    assert main(words) == 0  # Gemini's model is in its path alone
    assert json.loads(capsys.readouterr().out)["action"] == ("block" if dialect == "gemini" else "mask")


def test_an_answer_is_tried_with_the_request_it_is_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    policies, request, answer = (tmp_path / name for name in ("p.yaml", "request.json", "answer.json"))
    policies.write_text(LIMITS)
    request.write_text(json.dumps(BODIES["chat"] | {"response_format": {"type": "json_object"}}))
    said = {"role": "assistant", "content": "<EMAIL_1> has mail"}
    answer.write_text(json.dumps({"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}))
    words = ["guard", "test", "-f", str(policies), "--stage", "response", "--request", str(request)]
    assert main([*words, "--body", str(answer)]) == 0
    assert capsys.readouterr().out == (
        "action: block\n"
        "code:   guardrail_json_schema\n"
        "client: The answer is against the guardrail 'shape'.\n"
        "    limits/shape: json at choices[0].message.content[0:18]: block\n"
    )
    said["content"] = json.dumps({"to": "<EMAIL_1>"})
    whole = json.dumps({"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]})
    monkeypatch.setattr("sys.stdin", io.StringIO(whole))
    assert main([*words, "--body", "-"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("action: pass\nbody:   ")
    assert "ada@example.org" in shown


def test_a_corpus_holds_texts_and_bodies_of_every_api(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies, corpus = tmp_path / "limits.yaml", tmp_path / "corpus.jsonl"
    policies.write_text(LIMITS)
    lines: list[dict[str, Any]] = [
        {"body": body, "dialect": dialect, "model": "m", "expect": "mask"} for dialect, body in BODIES.items()
    ]
    lines += [
        {"text": "a sparrow", "dialect": dialect, "model": "m", "expect": "block"} for dialect in BODIES
    ]
    lines += [
        {"text": "a sparrow", "dialect": dialect, "stage": "response", "expect": "block"}
        for dialect in BODIES
        if dialect != "embeddings"
    ]
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["guard", "test", "-f", str(policies), "--corpus", str(corpus)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "17 texts: 0 pass, 0 flag, 6 mask, 11 block",
        "    limits/birds: 11",
        "    limits/length: 10",
        "    limits/mail: 6",
        "0 not as expected",
    ]
    corpus.write_text('{"text": "a"}\n{"text": "a", "dialect": "chatt"}\n')
    assert main(["guard", "test", "-f", str(policies), "--corpus", str(corpus)]) == 1
    assert capsys.readouterr().err.startswith(f"pointsman guard: error: {corpus}: line 2: dialect: ")


ELSEWHERE = """
apiVersion: pointsman.dev/v1
kind: GuardrailPolicy
metadata: {name: few}
spec:
  tenants: [research, "team-*"]
  pools: [llama]
  rules:
  - {name: fish, type: keywords, parameters: {words: [herring]}}
  - {name: asked, type: webhook, parameters: {url: "http://127.0.0.1:1/"}}
---
apiVersion: pointsman.dev/v1
kind: GuardrailPolicy
metadata: {name: idle}
spec:
  enabled: false
  rules: [{name: fish, type: keywords, parameters: {words: [herring]}}]
"""


def test_policies_that_do_not_count_are_told_with_the_way_to_try_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(ELSEWHERE)
    assert main(["guard", "test", "-f", str(file), "a herring"]) == 0
    assert capsys.readouterr().out == (
        "action: pass\n"
        "text:   a herring\n"
        "    few: is for other traffic (tenants research, team-*; pools llama); "
        "say which with --tenant, --pool\n"
        "    idle: is off\n"
    )
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "a herring", "tenant": "team-1", "pool": "llama"}\n{"text": "a herring"}\n')
    assert main(["guard", "test", "-f", str(file), "--corpus", str(corpus)]) == 0
    assert capsys.readouterr().out == (
        "2 texts: 1 pass, 0 flag, 0 mask, 1 block\n    few/fish: 1\n    idle: is off\n0 not as expected\n"
    )
    assert main(["guard", "test", "-f", str(file), "--tenant", "team-1", "--pool=llama", "a herring"]) == 0
    assert capsys.readouterr().out == (
        "action: block\n"
        "code:   guardrail_keywords\n"
        "client: The request is against the guardrail 'fish'.\n"
        "    few/fish: word 0 at messages[0].content[2:9]: block\n"
        "    few/asked: asks somebody else, not run here\n"
        "    idle: is off\n"
    )


def test_finds_that_have_no_place_in_a_text_show_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    rules = (
        "  - {name: short, type: maxInputTokens, mode: flag, parameters: {tokens: 1}}\n"
        "  - {name: models, type: parameters, parameters: {allowedModels: [m]}}\n"
    )
    file.write_text(POLICY[: POLICY.index("  - {name: birds")] + rules)
    assert main(["guard", "test", "-f", str(file), "--model", "other", "a long text"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "    house/short: tooManyEstimated: flag",
        "    house/models: model at model: block",
    ]
