"""Characters that people do not see and models do, or that show text in another order than it is in.

Characters that do their work where they stand are left alone: joiners inside emoji and between letters of the
scripts that need them, selectors behind what has variants, direction marks beside letters written from right
to left, the tags of the three flags that are spelled with them. Whether one is left alone depends on its
neighbours, but for the flags, which streams therefore do not know.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

from dataplane.config.guardrails import Invisible, Unicode
from ipp.guardrails.matches import Match

MAX_RUN: Final = 64
"""Characters in one match; more in a row are several."""

_CLASSES: Final[dict[Invisible, str]] = {
    "invisible": "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0100-\U000e01ef",
    "bidirectional": "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069",
    "control": "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f",
    "tag": "\U000e0000-\U000e007f",
}
_FLAG: Final = "\U0001f3f4"
_FLAGS: Final = tuple(
    "".join(chr(0xE0000 + ord(c)) for c in name) + "\U000e007f" for name in ("gbeng", "gbsct", "gbwls")
)
_JOINING: Final = (
    range(0x600, 0x900),  # Arabic, Syriac and their like
    range(0x900, 0xE00),  # scripts of India
    range(0x1780, 0x1800),  # Khmer
    range(0x1800, 0x18B0),  # Mongolian
    range(0xFB50, 0xFE00),
    range(0xFE70, 0xFEFF),
)


class UnicodeRule:
    """Kinds are the classes; what is masked is left out."""

    def __init__(self, parameters: Unicode, *, streaming: bool) -> None:
        self.longest = MAX_RUN if streaming else None
        self._streaming = streaming
        self._classes: list[tuple[Invisible, re.Pattern[str]]] = [
            (name, re.compile(f"[{_CLASSES[name]}]")) for name in dict.fromkeys(parameters.classes)
        ]
        self._any = re.compile("[" + "".join(_CLASSES[name] for name, _ in self._classes) + "]")

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        found: list[Match] = []
        first = last = -1
        kind: Invisible = "invisible"
        skipped = start
        for match in self._any.finditer(text, start):
            at = match.start()
            if at < skipped or _belongs(text, at):
                continue
            if not self._streaming and at and text[at - 1] == _FLAG and text.startswith(_FLAGS, at):
                skipped = at + len(_FLAGS[0])
                continue
            this = self._kind(text[at])
            if at == last and this == kind and last - first < MAX_RUN:
                last += 1
                continue
            if first >= 0:
                found.append(Match(first, last, kind, replacement=""))
            first, last, kind = at, at + 1, this
        if first >= 0:
            found.append(Match(first, last, kind, replacement=""))
        return found

    def _kind(self, character: str) -> Invisible:
        return next(name for name, pattern in self._classes if pattern.match(character))


def _belongs(text: str, at: int) -> bool:
    """Whether the character does its work between its neighbours."""
    judge = _NEIGHBOURS.get(text[at])
    if judge is None:
        return False
    return judge(text[at - 1] if at else "", text[at + 1] if at + 1 < len(text) else "")


def _is_pictured(character: str) -> bool:
    """Emoji, and what gets to be one by a selector."""
    return bool(character) and (
        unicodedata.category(character) in {"So", "Sm"}
        or character in "0123456789#*\u203c\u2049\u3030\u303d"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _in_joining_script(character: str) -> bool:
    return bool(character) and any(ord(character) in span for span in _JOINING)


def _selects(before: str, _after: str) -> bool:
    return _is_pictured(before)


def _joins(before: str, after: str) -> bool:
    emoji = (before == "\ufe0f" or _is_pictured(before)) and _is_pictured(after)
    return emoji or (_in_joining_script(before) and (_in_joining_script(after) or not after.isalnum()))


def _divides(before: str, after: str) -> bool:
    return _in_joining_script(before) and (_in_joining_script(after) or not after.isalnum())


def _directs(before: str, after: str) -> bool:
    return any(c and unicodedata.bidirectional(c) in {"R", "AL", "AN"} for c in (before, after))


_NEIGHBOURS: Final[dict[str, Callable[[str, str], bool]]] = {
    "\ufe0f": _selects,
    "\ufe0e": _selects,
    "\u200d": _joins,
    "\u200c": _divides,
    "\u200e": _directs,
    "\u200f": _directs,
    "\u061c": _directs,
}
