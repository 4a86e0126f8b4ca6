"""How much text a pattern of RE2 can match at most, read from the pattern.

Streams hold back as much text as a rule can match, so a rule for streams has to say how much that is. RE2
does not tell; its syntax does. Patterns come here after RE2 has accepted them, so mistakes in them are not
looked for: what is read is only what takes part in lengths.
"""

from __future__ import annotations

import math
import re
from typing import Final

_REPEAT: Final = re.compile(r"\{(\d+)(,(\d*))?\}")
_GROUP: Final = re.compile(r"\?(?:P?<\w+>|[a-zA-Z-]*(?P<end>[:)]))")
_ESCAPE: Final = re.compile(
    r"\\(?:[bBAz](?P<empty>)|[pP](?:\{[^}]*\}|.)|x(?:\{[^}]*\}|..)|[0-7]{1,3}|.)", re.DOTALL
)
_CLASS: Final = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\(?:[pPx]\{[^}]*\}|.)|[^\]\\])*\]", re.DOTALL)


def greatest_length(pattern: str) -> int | None:
    """Most code points the pattern matches; None = there is no bound."""
    length, _ = _alternatives(pattern, 0)
    return None if math.isinf(length) else int(length)


def _alternatives(pattern: str, at: int) -> tuple[float, int]:
    """The longest of the alternatives from ``at`` on, and where their group ends."""
    longest = 0.0
    while True:
        length, at = _sequence(pattern, at)
        longest = max(longest, length)
        if at >= len(pattern) or pattern[at] == ")":
            return longest, at
        at += 1


def _sequence(pattern: str, at: int) -> tuple[float, int]:
    total = 0.0
    while at < len(pattern) and pattern[at] not in "|)":
        length, at = _item(pattern, at)
        times, at = _repetition(pattern, at)
        total += length * times if length else 0.0
    return total, at


def _item(pattern: str, at: int) -> tuple[float, int]:
    character = pattern[at]
    if character == "(":
        group = _GROUP.match(pattern, at + 1)
        if group and group["end"] == ")":
            return 0.0, group.end()
        length, end = _alternatives(pattern, group.end() if group else at + 1)
        return length, end + 1
    if character == "[" and (found := _CLASS.match(pattern, at)):
        return 1.0, found.end()
    if character in "^$":
        return 0.0, at + 1
    if pattern.startswith("\\Q", at):
        end = pattern.find("\\E", at + 2)
        end = len(pattern) if end < 0 else end
        # The last of the quoted characters is the one that a repetition repeats.
        if end - at > 3 and _repetition(pattern, end + 2)[0] != 1:
            return math.inf, end + 2
        return float(end - at - 2), end + 2
    if character == "\\" and (escape := _ESCAPE.match(pattern, at)):
        return (0.0 if escape["empty"] is not None else 1.0), escape.end()
    return 1.0, at + 1


def _repetition(pattern: str, at: int) -> tuple[float, int]:
    """How often the item before ``at`` may come, at most."""
    times = 1.0
    while at < len(pattern):
        if pattern[at] in "*+":
            times, at = math.inf, at + 1
        elif pattern[at] == "?":
            at += 1
        elif found := _REPEAT.match(pattern, at):
            most = found[3] if found[2] else found[1]
            times, at = times * (float(most) if most else math.inf), found.end()
        else:
            break
    return times, at
