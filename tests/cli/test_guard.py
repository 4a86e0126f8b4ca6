"""`pointsman guard test` with policies of files."""

from __future__ import annotations

import json
from pathlib import Path

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
        ([], "give a text, or a corpus with --corpus"),
        (["a", "--corpus", "b"], "give a text, or a corpus with --corpus"),
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
