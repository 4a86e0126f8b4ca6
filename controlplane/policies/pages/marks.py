"""Texts and bodies with every match in its place, as pieces that a template puts together.

Characters that nobody sees are written out by their numbers, since guardrails are often about them.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ipp.guardrails.verdicts import Verdict

MAX_PIECES: Final = 20_000
"""Of one text or body; the rest is told as one piece."""
MAX_DEPTH: Final = 64
"""Of a body; guardrails refuse what is deeper."""
_STRENGTH: Final = {"flag": 1, "mask": 2, "block": 3}
_SEEN: Final = frozenset("\n\t")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Co", "Cs"})
_NAME: Final = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_.:/+-]{0,63})?", re.ASCII)
"""Keys that paths spell out; others are a star."""


@dataclass(slots=True)
class Piece:
    """Some text that is all alike."""

    text: str
    hits: list[int] = field(default_factory=list)
    """Numbers of the matches it is part of."""
    begins: list[int] = field(default_factory=list)
    """Those that begin with it."""
    action: str = ""
    """The strongest of theirs."""
    is_unseen: bool = False


class Hit(NamedTuple):
    """A match with its number."""

    number: int
    verdict: Verdict


def numbered(verdicts: Sequence[Verdict]) -> list[Hit]:
    """Matches in the order of their places, counted from one."""
    ordered = sorted(verdicts, key=lambda each: (each.path, each.start, each.end))
    return [Hit(number, each) for number, each in enumerate(ordered, 1)]


def of_text(text: str, hits: Sequence[Hit]) -> list[Piece]:
    """A text with the matches that have a place in it."""
    placed = [hit for hit in hits if hit.verdict.end > hit.verdict.start]
    edges = {0, len(text)}
    for hit in placed:
        edges |= {min(hit.verdict.start, len(text)), min(hit.verdict.end, len(text))}
    pieces: list[Piece] = []
    ordered = sorted(edges)
    for start, end in pairwise(ordered):
        inside = [hit for hit in placed if hit.verdict.start <= start and end <= hit.verdict.end]
        begins = [hit.number for hit in inside if hit.verdict.start == start]
        pieces += _seen(text[start:end], inside, begins)
    return _capped(pieces)


def _seen(text: str, inside: Sequence[Hit], begins: list[int]) -> list[Piece]:
    """A stretch in pieces of what is seen and what is not."""
    numbers = [hit.number for hit in inside]
    action = max((hit.verdict.action for hit in inside), key=_STRENGTH.__getitem__, default="")
    pieces: list[Piece] = []
    run = ""
    for character in text:
        if character in _SEEN or unicodedata.category(character) not in _UNSEEN:
            run += character
            continue
        if run:
            pieces.append(Piece(run, numbers, [], action))
            run = ""
        pieces.append(Piece(f"U+{ord(character):04X}", numbers, [], action, is_unseen=True))
    if run:
        pieces.append(Piece(run, numbers, [], action))
    if pieces:
        pieces[0].begins = begins
    return pieces


def of_body(body: Any, hits: Sequence[Hit]) -> list[Piece]:
    """A body as JSON, with matches in its values, and those that are about a whole field at its key."""
    by_path: Mapping[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        by_path[hit.verdict.path].append(hit)
    pieces: list[Piece] = []
    _write(body, "", by_path, 0, pieces)
    return _capped(_joined(pieces))


def _write(value: Any, path: str, hits: Mapping[str, list[Hit]], depth: int, pieces: list[Piece]) -> None:
    inner, outer = "  " * (depth + 1), "  " * depth
    if depth > MAX_DEPTH:
        pieces.append(Piece("…"))
    elif isinstance(value, dict) and value:
        pieces.append(Piece("{\n"))
        for at, (key, item) in enumerate(value.items()):
            readable = key if _NAME.fullmatch(key) else "*"
            below = f"{path}.{readable}" if path else readable
            about = [hit for hit in hits.get(below, ()) if hit.verdict.end <= hit.verdict.start]
            pieces.append(Piece(inner))
            pieces += _seen(json.dumps(key, ensure_ascii=False), about, [hit.number for hit in about])
            pieces.append(Piece(": "))
            _write(item, below, hits, depth + 1, pieces)
            pieces.append(Piece(",\n" if at + 1 < len(value) else "\n"))
        pieces.append(Piece(f"{outer}}}"))
    elif isinstance(value, list) and value:
        pieces.append(Piece("[\n"))
        for at, item in enumerate(value):
            pieces.append(Piece(inner))
            _write(item, f"{path}[{at}]", hits, depth + 1, pieces)
            pieces.append(Piece(",\n" if at + 1 < len(value) else "\n"))
        pieces.append(Piece(f"{outer}]"))
    elif isinstance(value, str):
        pieces.append(Piece('"'))
        for piece in of_text(value, hits.get(path, ())):
            if not piece.is_unseen:
                piece.text = json.dumps(piece.text, ensure_ascii=False)[1:-1]
            pieces.append(piece)
        pieces.append(Piece('"'))
    else:
        pieces += of_text(json.dumps(value, ensure_ascii=False), hits.get(path, ()))


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours without matches as one."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if last is not None and not (last.hits or piece.hits or last.is_unseen or piece.is_unseen):
            last.text += piece.text
        else:
            found.append(piece)
    return found


def _capped(pieces: list[Piece]) -> list[Piece]:
    if len(pieces) <= MAX_PIECES:
        return pieces
    rest = "".join(piece.text for piece in pieces[MAX_PIECES:])
    return [*pieces[:MAX_PIECES], Piece(rest)]
