"""Which policies hold for the same traffic, and whose rules come first.

All policies that match hold; of rules with one name the one alone whose policy comes first: by priority, then
by name (``ipp.guardrails.policies``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dataplane.config.guardrails import GuardrailPolicySpec

MAX_OTHERS: Final = 100
"""Policies that are told beside one."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Another policy for some of the same traffic."""

    name: str
    priority: int
    comes_first: bool
    is_whole: bool
    """Whether it holds for all of the traffic of the policy that is looked at."""
    shared: list[str]
    """Names of rules that both have."""


@dataclass(frozen=True, slots=True)
class Beaten:
    """A rule that another policy has as well, and before."""

    policy: str
    is_always: bool
    """Whether the rule never counts; else it does for traffic the other policy is not for."""


def place_of(name: str, spec: GuardrailPolicySpec) -> tuple[int, str]:
    """Policies in this order."""
    return -spec.priority, name


def beside(
    name: str, spec: GuardrailPolicySpec, others: Sequence[tuple[str, GuardrailPolicySpec]]
) -> list[Beside]:
    """Enabled policies for some of the same traffic, in the order in which they come."""
    rules = [rule.name for rule in spec.rules]
    found = []
    for other, said in sorted(others, key=lambda each: place_of(*each)):
        if other == name or not said.enabled or not _meet(spec, said):
            continue
        theirs = {rule.name for rule in said.rules}
        first = place_of(other, said) < place_of(name, spec)
        shared = [rule for rule in rules if rule in theirs]
        found.append(Beside(other, said.priority, first, _holds_wherever(said, spec), shared))
    return found


def beaten(rule: str, others: Sequence[Beside]) -> list[Beaten]:
    """Who has a rule of this name before."""
    return [
        Beaten(other.name, other.is_whole) for other in others if other.comes_first and rule in other.shared
    ]


def _dimensions(
    one: GuardrailPolicySpec, two: GuardrailPolicySpec
) -> list[tuple[list[str] | None, list[str] | None]]:
    return [(one.tenants, two.tenants), (one.models, two.models), (one.pools, two.pools)]


def _meet(one: GuardrailPolicySpec, two: GuardrailPolicySpec) -> bool:
    """Whether some traffic is for both."""
    return all(
        mine is None or theirs is None or any(_touch(a, b) for a in mine for b in theirs)
        for mine, theirs in _dimensions(one, two)
    )


def _holds_wherever(one: GuardrailPolicySpec, two: GuardrailPolicySpec) -> bool:
    """Whether all that ``two`` is for, ``one`` is for as well."""
    return all(
        wide is None or (narrow is not None and all(any(_within(b, a) for a in wide) for b in narrow))
        for wide, narrow in _dimensions(one, two)
    )


def _touch(a: str, b: str) -> bool:
    return _within(a, b) or _within(b, a)


def _within(narrow: str, wide: str) -> bool:
    """Whether all names of one pattern are of the other."""
    if not wide.endswith("*"):
        return narrow == wide
    return narrow.removesuffix("*").startswith(wide[:-1])
