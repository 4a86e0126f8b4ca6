"""Small rules for tests of the guardrails' engine, and what they must come to, worked out by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dataplane.config.guardrails import Rule
from ipp.guardrails.at_work import RuleAtWork
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.matches import Match


class Pattern:
    """Finds what a pattern of Python's finds, which spans at most ``longest`` code points."""

    def __init__(self, pattern: str, longest: int | None, kind: str = "pattern 0") -> None:
        self.pattern = re.compile(pattern)
        self.longest = longest
        self.kind = kind

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        return [Match(*found.span(), self.kind) for found in self.pattern.finditer(text, start)]


def at_work(
    name: str,
    pattern: str,
    longest: int | None = None,
    *,
    mode: str = "mask",
    kind: str = "pattern 0",
    restores: bool = False,
    stages: Sequence[str] = ("request", "response", "stream"),
    message: str = "",
) -> RuleAtWork:
    """A rule that finds a pattern; one that restores is of type ``pii``."""
    rule = Rule(
        name=name,
        type="pii" if restores else "patterns",
        mode=mode,  # type: ignore[arg-type]
        stages=list(stages),  # type: ignore[arg-type]
        message=message,
    )
    found = Pattern(pattern, longest, kind)
    return RuleAtWork("policy", rule, restores, found, found)


def policy(*rules: RuleAtWork) -> CompiledPolicy:
    return CompiledPolicy(rules)


BLOCKED = "\0"
"""What stands in the place of what blocks."""


def expected(rules: Sequence[RuleAtWork], text: str, placeholders: dict[str, str]) -> tuple[str, bool]:
    """What a whole text comes to, and whether it is blocked; what blocks is ``BLOCKED`` then."""
    blocks = False
    found: list[tuple[int, int, int, str]] = []
    for name, original in placeholders.items():
        found += [(at.start(), -at.end(), -1, original) for at in re.finditer(re.escape(name), text)]
    for index, rule in enumerate(rules):
        hidden = "***" if rule.rule.type == "patterns" else "[EMAIL]"
        hidden = BLOCKED if rule.rule.mode == "block" else hidden
        found += [(match.start, -match.end, index, hidden) for match in rule.text.find(text)]
    kept: list[tuple[int, int, int, str]] = []
    pieces, covered, within = [], 0, 0
    for start, minus_end, index, new in sorted(found):
        end = -minus_end
        if index >= 0 and end <= within:
            continue
        blocks |= index >= 0 and rules[index].rule.mode == "block"
        if index < 0 and start < covered:
            continue
        if index < 0:
            within = end
        if end > covered and (index < 0 or rules[index].rule.mode != "flag"):
            begin = max(start, covered)
            kept.append((begin, end, index, new))
            covered = end
    at = 0
    for start, end, _, new in kept:
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]]), blocks
