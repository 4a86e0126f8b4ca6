"""Just enough of PromQL to see which metrics and labels an expression asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<range>\[[^\]]*\])
      | (?P<number>\d[\d.]*(?:e[+-]?\d+)?[smhdw]?|\.\d+)
      | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<operator>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},])""",
    re.VERBOSE,
)
WORDS = {"and", "or", "unless", "bool", "offset", "atan2"}
LABEL_LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}


@dataclass
class Asked:
    """What an expression asks for."""

    metrics: dict[str, set[str]] = field(default_factory=dict)
    """Metric -> labels its selectors match on."""
    grouped: set[str] = field(default_factory=set)
    """Labels of by, without, on and ignoring."""
    functions: set[str] = field(default_factory=set)


def tokens(expression: str) -> list[tuple[str, str]]:
    """Kind and text of each token. ``ValueError`` at what is none."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(expression):
        match = TOKEN.match(expression, at)
        if match is None:
            raise ValueError(f"{expression[at : at + 20]!r} is no PromQL")
        at = match.end()
        assert match.lastgroup is not None
        if match.lastgroup != "space":
            found.append((match.lastgroup, match[0]))
    return found


def asked(expression: str) -> Asked:
    """Metrics and labels of an expression. ``ValueError`` when brackets do not match."""
    result = Asked()
    found = tokens(expression)
    depth = at = 0
    while at < len(found):
        kind, text = found[at]
        following = found[at + 1][1] if at + 1 < len(found) else ""
        at += 1
        if text in ("(", ")"):
            depth += 1 if text == "(" else -1
            if depth < 0:
                raise ValueError(f"one ) too many in {expression}")
        if kind != "name" or text in WORDS:
            continue
        if text in LABEL_LISTS:
            if following == "(":
                at, labels = _labels(found, at + 1, ")")
                result.grouped |= labels
        elif following == "(" or following in LABEL_LISTS:
            result.functions.add(text)
        else:
            labels = set()
            if following == "{":
                at, labels = _labels(found, at + 1, "}")
            result.metrics.setdefault(text, set()).update(labels)
    if depth:
        raise ValueError(f"a ( is not closed in {expression}")
    return result


def _labels(found: list[tuple[str, str]], at: int, end: str) -> tuple[int, set[str]]:
    """Position after ``end``, and the names up to there."""
    labels = set()
    while found[at][1] != end:
        if found[at][0] == "name":
            labels.add(found[at][1])
        at += 1
        if at >= len(found):
            raise ValueError(f"no {end} follows")
    return at + 1, labels
