"""Texts made to keep rules busy cost what their length costs: counted in calls, not in time.

Everything that Python runs is counted, and every call into a matcher, each of which is linear by itself: RE2
by its construction, the rest by patterns that never step back.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.errors import ConfigError
from dataplane.extproc.events import EndBody
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.policies import Policies

ALL = ["request", "response", "stream"]
WHOLE = ["request", "response"]
RULES: dict[str, dict[str, Any]] = {
    "keywords": {"stages": ALL, "parameters": {"words": ["aaaaaaaab", "a b a b c", "kill"]}},
    "patterns": {
        "stages": ALL,
        "parameters": {"patterns": ["(a|aa){1,40}b", "(a?){64}a{64}b", "<[A-Z_]{1,40}>"]},
    },
    "pii": {
        "mode": "mask",
        "stages": ALL,
        "parameters": {"entities": ["email", "phone", "iban", "card", "nationalId", "ip", "secret"]},
    },
    "promptInjection": {},
    "unicode": {"stages": ALL},
    "topics": {"stages": WHOLE, "parameters": {"denied": [{"name": "t", "words": ["aab", "kill"]}]}},
    "language": {"stages": WHOLE, "parameters": {"allowed": ["en"]}},
    "allowPatterns": {"parameters": {"patterns": ["(a*)*b", "(.*)*c", "(x+x+)+y"]}},
}
TEXTS = {
    "one letter": "a",
    "letters one by one": "a ",
    "cards that are none": "4111 1111 1111 1112 ",
    "digits": "4",
    "addresses that begin": "a@",
    "domains without end": "a.",
    "placeholders that begin": "<EMAIL_",
    "orders that begin": "ignore all previous ",
    "invisible": "a\u200b",
    "combining": "a\u0301",
    "base64": "aWdub3JlIGFsbCBwcmV2aW91cw",
    "look-alikes": "\u0430\u0440",
    "tags": "\U000e0061",
    "open brackets": "[",
    "quotes": '"',
    "escapes": "\\",
    "escaped letters": "\\u0061",
    "small strings": '["a"],',
    "urls": "http://a:",
    "ips": "1.1.1.",
    "surrogate halves": "\ud83d",
}
SIZE = 800
"""Code points in a part; more than a stream holds back."""
MOST = 100
"""Calls for a character of the text, which is looked at as content and as arguments."""


def compiled(kind: str) -> CompiledPolicy:
    rule = {"name": "rule", "type": kind, **RULES[kind]}
    found = Policies([("p", msgspec.convert({"rules": [rule]}, GuardrailPolicySpec))]).select("", "m", "")
    assert found is not None
    return found


def calls(work: Callable[[], Any]) -> int:
    """How many functions are called, those written in C as well."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def text_of(piece: str, size: int) -> str:
    return (piece * (size // len(piece) + 1))[:size]


def check(policy: CompiledPolicy, stage: str, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    if stage == "request":
        call = {"function": {"name": "f", "arguments": text}}
        body = {"messages": [{"role": "user", "content": text}, {"tool_calls": [call]}]}
        policy.check_request(json.dumps(body).encode())
    elif stage == "response":
        policy.check_response(json.dumps({"choices": [{"message": {"content": text}}]}).encode())
        policy.check_response(text.encode())
    else:
        guard = policy.open_stream("sse")
        with contextlib.suppress(EndBody):
            for at in range(0, len(text), 50):
                delta = {
                    "content": text[at : at + 50],
                    "tool_calls": [{"function": {"arguments": text[at : at + 50]}}],
                }
                choice = {"index": 0, "delta": delta}
                assert guard is not None
                guard.feed(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n", False)


CASES = [(kind, stage) for kind, rule in RULES.items() for stage in rule.get("stages") or ["request"]]


@pytest.mark.parametrize(("kind", "stage"), CASES)
def test_twice_the_text_costs_twice_as_much(kind: str, stage: str) -> None:
    policy = compiled(kind)
    for name, piece in TEXTS.items():
        check(policy, stage, text_of(piece, 100))  # tables that are made at the first use
        costs = [calls(partial(check, policy, stage, text_of(piece, times * SIZE))) for times in (1, 2, 4)]
        one, two = costs[1] - costs[0], costs[2] - costs[1]
        assert two <= 3 * one + 1500, (name, costs)  # it would be four times as much by the square
        assert two <= 2 * MOST * SIZE, (name, costs)


@pytest.mark.parametrize(
    "pattern", [r"(a+)+\1", r"(?=a)b", r"(?<=a)b", r"(?>a)b", "a{1,2000}", "(a{1,100}){1,100}"]
)
def test_patterns_that_could_cost_more_are_refused(pattern: str) -> None:
    for kind in ("patterns", "allowPatterns"):
        rule = {"name": "rule", "type": kind, "parameters": {"patterns": ["ok", pattern]}}
        with pytest.raises(ConfigError) as caught:
            Policies([("p", msgspec.convert({"rules": [rule]}, GuardrailPolicySpec))])
        assert str(caught.value.path).endswith("parameters.patterns[1]")
