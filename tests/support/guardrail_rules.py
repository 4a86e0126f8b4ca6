"""Rules made from plain parameters, and a stream that is looked at piece by piece, for tests of rules."""

from collections.abc import Sequence
from typing import Any

from dataplane.config.guardrails import Rule, rule_parameters
from dataplane.errors import ConfigError
from ipp.guardrails.matches import Match, TextRule
from ipp.guardrails.rules import compile_rule


def made(
    type_: str,
    parameters: dict[str, Any],
    *,
    mode: str = "block",
    stages: list[str] | None = None,
    streaming: bool | None = None,
) -> Any:
    """The compiled rule; the first mistake of its parameters is raised."""
    problems: list[ConfigError] = []
    rule = Rule(name="rule", type=type_, mode=mode, stages=stages, parameters=parameters)
    read = rule_parameters(rule, "rule", problems)
    if problems:
        raise problems[0]
    assert read is not None
    return compile_rule(rule, read, streaming=streaming)


def found(rule: TextRule, text: str) -> list[tuple[str, str]]:
    """Kinds and what they are of."""
    return [(match.kind, text[match.start : match.end]) for match in rule.find(text)]


def piecewise(rule: TextRule, text: str, cuts: Sequence[int]) -> list[Match]:
    """What is found by somebody who has the text up to each of the cuts and holds back what is promised."""
    assert rule.longest is not None
    decided, collected = 0, []
    for come in (*sorted(cuts), len(text)):
        context = max(decided - 1, 0)
        last = come == len(text)
        limit = come if last else come - rule.longest - 1
        for match in rule.find(text[context:come], decided - context):
            if match.start + context < limit:
                collected.append(match._replace(start=match.start + context, end=match.end + context))
                decided = match.end + context
        decided = max(decided, limit)
    return collected
