"""Policies tried on texts and bodies, as a person does before putting them in force."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.errors import ConfigError
from ipp.guardrails.trial import Trial, TrialResult, run_trial

ALL = ["request", "response", "stream"]
RULES: list[dict[str, Any]] = [
    {"name": "words", "type": "keywords", "parameters": {"words": ["forbidden"]}, "stages": ALL},
    {
        "name": "mail",
        "type": "pii",
        "mode": "mask",
        "parameters": {"entities": ["email"], "restore": False},
        "stages": ALL,
    },
    {"name": "ask", "type": "webhook", "parameters": {"url": "http://127.0.0.1:1/"}},
]


def tried(**trial: Any) -> TrialResult:
    spec = msgspec.convert({"rules": RULES, "models": ["m*"]}, GuardrailPolicySpec)
    return run_trial([("house", spec)], Trial(**{"model": "m1", **trial}))


@pytest.mark.parametrize("stage", ALL)
def test_a_text_is_blocked_in_every_stage_with_where_and_what(stage: str) -> None:
    found = tried(text="this is Forbidden, I say", stage=stage)
    assert (found.action, found.code) == ("block", "guardrail_keywords")
    (verdict,) = found.verdicts
    assert (verdict.policy, verdict.rule, verdict.kind, verdict.start, verdict.end) == (
        "house",
        "words",
        "word 0",
        8,
        17,
    )
    assert found.text in {None, "this is "}


@pytest.mark.parametrize("stage", ALL)
def test_a_text_is_masked_in_every_stage(stage: str) -> None:
    found = tried(text="write to ada@example.org today, please", stage=stage)
    assert found.action == "mask"
    assert found.text is not None
    assert "ada@example.org" not in found.text
    assert found.text.startswith("write to ")
    assert found.text.endswith(" today, please")
    assert [(each.kind, each.start, each.end) for each in found.verdicts] == [("email", 9, 24)]


def test_a_harmless_text_is_left_as_it_is_and_rules_that_ask_are_named() -> None:
    found = tried(text="hello")
    assert (found.action, found.text, found.verdicts, found.not_run) == ("pass", "hello", (), ("house/ask",))


def test_a_policy_that_does_not_hold_finds_nothing() -> None:
    assert tried(text="forbidden", model="other").action == "pass"


def test_a_body_is_tried_whole() -> None:
    body = {"model": "m2", "messages": [{"role": "user", "content": "mail a@example.org"}], "seed": 7}
    found = tried(body=body, model="")
    assert found.action == "mask"
    assert found.body["seed"] == 7
    assert found.verdicts[0].path == "messages[0].content"


PATHS = {
    "chat": ("messages[0].content", "choices[0].message.content", "choices[0].delta.content"),
    "completions": ("prompt", "choices[0].text", "choices[0].text"),
    "responses": ("input", "output[0].content[0].text", "delta"),
    "messages": ("messages[0].content", "content[0].text", "delta.text"),
    "gemini": (
        "contents[0].parts[0].text",
        "candidates[0].content.parts[0].text",
        "candidates[0].content.parts[0].text",
    ),
}


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("stage", ALL)
def test_a_text_stands_where_each_api_has_it(dialect: str, stage: str) -> None:
    masked = tried(text="write to ada@example.org today", dialect=dialect, stage=stage)
    (verdict,) = masked.verdicts
    assert (masked.text, verdict.path, verdict.start, verdict.end) == (
        "write to [EMAIL] today",
        PATHS[dialect][ALL.index(stage)],
        9,
        24,
    )
    blocked = tried(text="this is forbidden", dialect=dialect, stage=stage)
    assert (blocked.action, blocked.text in {None, "this is "}) == ("block", True)
    assert "guardrail 'words'" in blocked.message
    assert "guardrail 'words'" in str(blocked.error)
    assert blocked.status == (200 if stage == "stream" else 400)


def test_what_is_put_into_numbers_is_a_request_and_no_answer() -> None:
    assert tried(text="forbidden", dialect="embeddings").verdicts[0].path == "input"
    with pytest.raises(ConfigError) as caught:
        tried(text="forbidden", dialect="embeddings", stage="response")
    assert str(caught.value) == "dialect: answers of embeddings hold no text"


@pytest.mark.parametrize(
    "trial", [{}, {"text": "a", "body": {}}, {"body": {"model": "m1"}, "stage": "stream"}]
)
def test_what_cannot_be_tried_is_refused(trial: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        tried(**trial)
