"""Label selectors as Kubernetes writes them: ``matchLabels`` and ``matchExpressions``, or a line of text.

A selector matches labels that meet every requirement; one without requirements matches everything. ``NotIn``
and ``DoesNotExist`` are met by labels without the key. Labels of endpoints from files may be any text, so
values are not held to Kubernetes' alphabet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from dataplane.errors import ConfigError
from dataplane.plugin.base import PluginParams


class Requirement(PluginParams, frozen=True):
    """One entry of ``matchExpressions``."""

    key: str
    """Label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label is compared."""
    values: list[str] = msgspec.field(default_factory=list)
    """Label values; at least one for In and NotIn, none for the others."""

    def __post_init__(self) -> None:
        if not self.key:
            raise ConfigError("must not be empty", path="key")
        if self.operator in ("In", "NotIn"):
            if not self.values:
                raise ConfigError(f"operator {self.operator} needs at least one value", path="values")
        elif self.values:
            raise ConfigError(f"operator {self.operator} takes no values; remove them", path="values")

    def test(self) -> Callable[[Mapping[str, str]], bool]:
        """A function from labels to whether they meet the requirement."""
        key, values = self.key, frozenset(self.values)
        match self.operator:
            case "In":
                return lambda labels: labels.get(key) in values
            case "NotIn":
                return lambda labels: labels.get(key) not in values
            case "Exists":
                return lambda labels: key in labels
            case "DoesNotExist":
                return lambda labels: key not in labels


class LabelSelector(PluginParams, frozen=True):
    """A selector. Its requirements are joined by "and"."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Label keys and the value each must have."""
    match_expressions: list[Requirement] = msgspec.field(default_factory=list)
    """Further requirements: `key`, `operator` (In, NotIn, Exists, DoesNotExist) and `values`."""

    def __post_init__(self) -> None:
        if "" in self.match_labels:
            raise ConfigError("a label key must not be empty", path="matchLabels")

    @property
    def is_empty(self) -> bool:
        """Whether it has no requirement, so that everything matches."""
        return not (self.match_labels or self.match_expressions)

    def unmet(self, labels: Mapping[str, str]) -> str:
        """Key of the first requirement that labels do not meet; empty when they meet all."""
        keys = [key for key, value in self.match_labels.items() if labels.get(key) != value]
        keys += [r.key for r in self.match_expressions if not r.test()(labels)]
        return keys[0] if keys else ""

    def test(self) -> Callable[[Mapping[str, str]], bool]:
        """A function from labels to whether the selector matches them."""
        equal = tuple(self.match_labels.items())
        tests = tuple(requirement.test() for requirement in self.match_expressions)

        def matches(labels: Mapping[str, str]) -> bool:
            return all(labels.get(key) == value for key, value in equal) and all(
                test(labels) for test in tests
            )

        return matches


_TEXT_REQUIREMENT: Final = re.compile(
    r"""\s*(?:
        (?P<key>[^\s,=!()]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s,=!()]*)
      | (?P<set_key>[^\s,=!()]+)\s+(?P<set_op>in|notin)\s*\((?P<values>[^()]*)\)
      | (?P<absent>!)?\s*(?P<bare>[^\s,=!()]+)
    )\s*(?:,|$)""",
    re.VERBOSE,
)


def parse_selector(text: str) -> LabelSelector:
    """A selector from its text, such as ``app=a,tier in (x, y),!canary``. ``ConfigError`` for other text."""
    found: list[Requirement] = []
    position = 0
    while position < len(text):
        match = _TEXT_REQUIREMENT.match(text, position)
        if match is None:
            raise ConfigError(
                f"{text[position:].strip()!r} is no label selector; write key=value, key!=value, "
                "key in (a, b), key notin (a, b), key or !key, joined by commas"
            )
        found.append(_requirement(match))
        position = match.end()
    return LabelSelector(match_expressions=found)


def _requirement(match: re.Match[str]) -> Requirement:
    if match["key"]:
        operator: Literal["In", "NotIn"] = "NotIn" if match["op"] == "!=" else "In"
        return Requirement(key=match["key"], operator=operator, values=[match["value"]])
    if match["set_key"]:
        values = [value.strip() for value in match["values"].split(",")]
        return Requirement(
            key=match["set_key"], operator="In" if match["set_op"] == "in" else "NotIn", values=values
        )
    return Requirement(key=match["bare"], operator="DoesNotExist" if match["absent"] else "Exists")
