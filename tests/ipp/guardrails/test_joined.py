"""Many texts at once come to what each of them comes to alone."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from dataplane.config.guardrails import GuardrailPolicySpec
from ipp.guardrails import joined
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.matches import Match
from ipp.guardrails.policies import Policies
from ipp.guardrails.verdicts import Outcome

PATTERNS = [r"foo[^0-9]{1,3}", r"\bbar\b", r"(?s)b.{2,5}z", r"qu.*ux", r"x\W?y", r"\Bq"]
RULES: dict[str, dict[str, Any]] = {
    "words": {"type": "keywords", "parameters": {"words": ["kill", "hot dog", "cat", "ab"]}},
    "inner": {"type": "keywords", "mode": "flag", "parameters": {"words": ["el", "at"], "wholeWords": False}},
    "cased": {
        "type": "keywords",
        "mode": "mask",
        "parameters": {"words": ["NATO", "hot dog"], "caseSensitive": True},
    },
    "patterns": {"type": "patterns", "mode": "mask", "parameters": {"patterns": PATTERNS}},
    "anchored": {"type": "patterns", "mode": "flag", "parameters": {"patterns": ["^cat", "dog$", r"\Ax"]}},
    "people": {
        "type": "pii",
        "mode": "mask",
        "parameters": {"entities": ["email", "phone", "iban", "card", "nationalId", "ip", "secret"]},
    },
    "unseen": {"type": "unicode", "mode": "flag", "parameters": {"classes": ["control", "invisible"]}},
}
PLAIN = (
    "kill k i l k1ll KILL hot dog cat ab el at NATO foo foo! bar b--z qu ux x y q xy . - a@b.de @ b.de 4111 "
    "4111-1111-1111-1111 DE89370400440532013000 DE89 10.0.0.1 10. 0.0.1 +49 1234567 token= 078-05-1120 078- "
    "sk-abcdefghij0123456789XYZ a2lsbA== a2lsbGtpbGxraWxs \u200b \x00 é к и 😀"
)
PIECES = [*PLAIN.split(" "), " ", "  ", "\n", "\x1f"]
texts = st.lists(
    st.lists(st.sampled_from([*PIECES, " ", "  "]), max_size=6).map("".join), min_size=1, max_size=9
)


@cache
def policy(names: tuple[str, ...]) -> CompiledPolicy:
    rules = [{"name": name, **RULES[name]} for name in names]
    spec = msgspec.convert({"rules": rules}, GuardrailPolicySpec)
    found = Policies([("p", spec)]).select("", "m", "")
    assert found is not None
    return found


def body_of(said: list[str], shape: str) -> bytes:
    if shape == "messages":
        content: Any = [{"role": "user", "content": text} for text in said]
    elif shape == "parts":
        content = [{"role": "user", "content": [{"type": "text", "text": text} for text in said]}]
    else:
        content = [{"content": text, "tool_calls": [{"function": {"arguments": "{}"}}]} for text in said]
    return json.dumps({"model": "m", "messages": content}, ensure_ascii=False).encode()


def outcome(names: tuple[str, ...], body: bytes) -> Any:
    found: Outcome = policy(names).check_request(body)
    verdicts = [msgspec.structs.replace(each, latency_us=0) for each in found.verdicts]
    return found.action, found.body, found.code, found.param, verdicts


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    said=texts,
    names=st.sets(st.sampled_from(sorted(RULES)), min_size=1).map(lambda names: tuple(sorted(names))),
    shape=st.sampled_from(["messages", "parts", "tools"]),
)
def test_looking_at_all_texts_at_once_changes_nothing(
    said: list[str], names: tuple[str, ...], shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = body_of(said, shape)
    together = outcome(names, body)
    with monkeypatch.context() as patch:
        patch.setattr(joined, "MIN_TEXTS", 10**9)
        assert outcome(names, body) == together


class Counting:
    """Finds a word, and counts how often it is asked."""

    longest = None
    is_local = True

    def __init__(self, word: str) -> None:
        self.word = word
        self.asked: list[str] = []

    def find(self, text: str, start: int = 0) -> list[Match]:
        self.asked.append(text)
        at = text.find(self.word, start)
        return [] if at < 0 else [Match(at, at + len(self.word), "word")]


def together(rule: Counting, said: list[str]) -> tuple[joined.Together, joined.Searchers]:
    base = joined.Searchers([joined.Searcher(rule, "flag", lambda _, part: part)])
    return joined.Together(said, base), base


def test_a_rule_is_asked_once_about_many_texts_and_each_knows_its_own_finds() -> None:
    rule = Counting("two")
    found, base = together(rule, ["one", "so two", "three"])
    assert rule.asked == ["one\x1fso two\x1fthree"]
    assert [found.of(index, base) for index in (0, 2)] == [None, None]
    mine = found.of(1, base)
    assert mine is not None
    assert mine.items[0].known is not None
    assert mine.items[0].known.matches == [Match(3, 6, "word")]


def test_texts_on_both_sides_of_a_joint_that_something_spans_are_looked_at_alone() -> None:
    found, base = together(Counting("e\x1fso"), ["one", "so", "three", "four"])
    assert [found.of(index, base) for index in range(4)] == [base, base, None, None]


def test_a_find_of_the_joint_itself_is_none_of_a_text() -> None:
    found, base = together(Counting("\x1f"), ["one", "two", "three"])
    assert [found.of(index, base) for index in range(3)] == [base, base, None]


def test_few_texts_are_looked_at_alone() -> None:
    rule = Counting("x")
    found, base = together(rule, ["one", "two"])
    assert (rule.asked, found.of(0, base), found.of(1, base)) == ([], base, base)


def test_what_a_rule_that_needs_whole_texts_has_to_do_is_left() -> None:
    rule = Counting("x")
    rule.is_local = False
    found, base = together(rule, ["one", "two", "three"])
    mine = found.of(0, base)
    assert (rule.asked, mine is not None and mine.items[0].known) == ([], None)
