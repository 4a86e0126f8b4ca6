"""Which rules hold for which traffic.

Rules are compiled once, when documents are taken over; a selection only puts those together whose policies
match. All policies that match hold; of rules with one name the one of the policy that comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from dataplane.config.guardrails import GuardrailPolicySpec, rule_parameters
from dataplane.config.problems import each_of
from dataplane.errors import ConfigError
from ipp.guardrails.asking import Asking
from ipp.guardrails.at_work import RESTORING, RuleAtWork
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.matches import TextRule
from ipp.guardrails.rules import compile_rule, is_pure

MAX_SELECTIONS: Final = 4096
"""Combinations of tenant, model and pool that are remembered; clients choose what they write there."""


class _Names:
    """Names, and beginnings of names."""

    __slots__ = ("_exact", "_heads")

    def __init__(self, patterns: Sequence[str] | None) -> None:
        listed = ["*"] if patterns is None else patterns
        self._exact = frozenset(pattern for pattern in listed if not pattern.endswith("*"))
        self._heads = tuple(pattern[:-1] for pattern in listed if pattern.endswith("*"))

    def match(self, name: str) -> bool:
        return name in self._exact or name.startswith(self._heads)


class _Policy:
    """One document, ready."""

    __slots__ = ("_models", "_pools", "_tenants", "name", "rules")

    def __init__(self, name: str, spec: GuardrailPolicySpec, rules: Sequence[RuleAtWork]) -> None:
        self.name = name
        self._tenants, self._models, self._pools = (
            _Names(spec.tenants),
            _Names(spec.models),
            _Names(spec.pools),
        )
        self.rules = tuple(rules)

    def holds(self, tenant: str, models: Sequence[str], pool: str) -> bool:
        """Whether it is for this traffic; without a model nobody knows where it goes, so it may be."""
        if not self._tenants.match(tenant):
            return False
        return not models or (any(map(self._models.match, models)) and self._pools.match(pool))


class Policies:
    """All policies there are."""

    def __init__(
        self,
        documents: Sequence[tuple[str, GuardrailPolicySpec]],
        asking: Asking | None = None,
        problems: list[ConfigError] | None = None,
    ) -> None:
        """``documents`` are names and specs.

        Rules that cannot be compiled go to ``problems``, all of them, and are left out; without ``problems``
        the first is raised. Without ``asking``, rules that ask somebody are left out: for trying policies.
        """
        mistakes: list[ConfigError] = []
        ordered = sorted(documents, key=lambda document: (-document[1].priority, document[0]))
        self._policies = [
            _Policy(name, spec, _compiled(name, spec, asking, mistakes))
            for name, spec in ordered
            if spec.enabled
        ]
        self.is_empty = not self._policies
        """Whether nothing can hold, whatever the traffic."""
        if mistakes and problems is None:
            raise mistakes[0]
        if problems is not None:
            problems += mistakes
        self._selections: dict[tuple[str, str, str, str, tuple[str, ...]], CompiledPolicy | None] = {}
        self._made: dict[tuple[int, ...], CompiledPolicy | None] = {}

    def select(
        self, tenant: str, model: str, pool: str, base_model: str = "", served: tuple[str, ...] = ()
    ) -> CompiledPolicy | None:
        """What holds for this traffic; None when nothing does. Unknown names are empty.

        A policy for a model is one for all names of that base model, and for what is asked for by another
        name and may be ``served`` by that model. Of traffic without a model every policy
        for its tenant holds, since a model server picks one.
        """
        key = (tenant, model, pool, base_model, served)
        try:
            return self._selections[key]
        except KeyError:
            pass
        models = [name for name in (model, base_model) if name]
        if models:
            models += served
        found = tuple(
            index for index, policy in enumerate(self._policies) if policy.holds(tenant, models, pool)
        )
        if found not in self._made:
            if len(self._made) >= MAX_SELECTIONS:
                self._made.clear()
            self._made[found] = self._joined(found)
        if len(self._selections) >= MAX_SELECTIONS:
            self._selections.clear()
        made = self._selections[key] = self._made[found]
        return made

    def holding(self, tenant: str, model: str, pool: str) -> frozenset[str]:
        """Names of the policies that hold for this traffic."""
        models = [model] if model else []
        return frozenset(each.name for each in self._policies if each.holds(tenant, models, pool))

    def _joined(self, found: Sequence[int]) -> CompiledPolicy | None:
        rules: dict[str, RuleAtWork] = {}
        for index in found:
            for rule in self._policies[index].rules:
                rules.setdefault(rule.rule.name, rule)
        return CompiledPolicy(list(rules.values())) if rules else None


def _compiled(
    name: str, spec: GuardrailPolicySpec, asking: Asking | None, problems: list[ConfigError]
) -> list[RuleAtWork]:
    """The rules of one policy."""
    made: list[RuleAtWork] = []
    for index, rule in enumerate(spec.rules):
        path = f"{name}.spec.rules[{index}]"
        parameters = rule_parameters(rule, path, problems)
        if parameters is None:
            continue
        restores = rule.type == RESTORING and rule.mode == "mask" and getattr(parameters, "restore", False)
        base = RuleAtWork(name, rule, restores, holds=spec.streams == "hold")
        try:
            if not is_pure(rule):
                if asking is not None:
                    made.append(base._replace(asked=asking.guard(name, rule, parameters)))
                continue
            stages = rule.stages or ["request"]
            first = compile_rule(rule, parameters, streaming=False)
            if not hasattr(first, "find"):
                made.append(base._replace(body=first))
                continue
            second = compile_rule(rule, parameters) if "stream" in stages else first
            at_work = base._replace(text=cast("TextRule", first), answer=cast("TextRule", second))
            CompiledPolicy([at_work])  # which says whether it may look at streams
            made.append(at_work)
        except ConfigError as error:
            problems.extend(each.within(f"{path}.parameters") for each in each_of(error))
    return made
