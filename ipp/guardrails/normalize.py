"""Folding: one spelling for all the ways to write the same, with the way back to the text as it was.

What a reader takes for the same letters is made the same: case, full-width and styled letters, diacritics,
shapes of Latin letters, kinds of quotes and dashes. What nobody sees (zero-width and control characters,
variation selectors, tags) is left out, and of white space in a row the first one stays, as a plain space.
Marks go only where they decorate an alphabet (Latin, Greek, Cyrillic, Hebrew, Arabic); in other scripts they
are letters.

Every folded character knows its place in the original. Everything works on arrays, so a prompt takes
microseconds and not a Python loop; the tables are made when they are needed first (about a tenth of a second)
and then kept. A lone surrogate is a character like any other.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipp.guardrails.lookalikes import DIGITS, FOREIGN, SHAPES

Codes = npt.NDArray[np.uint32] | npt.NDArray[np.uint8]
"""Code points; of one byte each where the text is of ASCII."""
Offsets = npt.NDArray[np.intp]

WORD: Final = 1
"""Letters, digits and marks of scripts that put spaces between words; the underscore is none."""
LETTER: Final = 2
"""Letters and digits of any script."""
HIDDEN: Final = 4
"""Folded away: not seen, or a mark on an alphabet's letter."""
DECORATION: Final = 8
"""A mark that belongs to the letter before it."""
DIGIT: Final = 16
"""Stands for a letter in leetspeak."""
FOREIGN_LOOK: Final = 32
"""Looks like a Latin letter and is none."""
TAG: Final = 64
"""Of the block of tags: an invisible copy of ASCII."""
OTHER_DIGIT: Final = 128
"""A digit of another script, or a full-width character of ASCII."""

_LAST: Final = sys.maxunicode + 1
_ALPHABET_MARKS: Final = (
    *range(0x300, 0x370),
    *range(0x483, 0x488),
    *range(0x591, 0x5C8),
    *range(0x610, 0x61B),
    0x640,
    *range(0x64B, 0x660),
    0x670,
    *range(0x1AB0, 0x1B00),
    *range(0x1DC0, 0x1E00),
    *range(0x20D0, 0x2100),
    *range(0xFE20, 0xFE30),
)
_FILLERS: Final = (0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0)
_SELECTORS: Final = (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_UNSPACED: Final = (
    range(0x0E00, 0x0F00),  # Thai, Lao
    range(0x1000, 0x10A0),  # Myanmar
    range(0x1100, 0x1200),  # Hangul, whose particles cling to the word
    range(0x1780, 0x1800),  # Khmer
    range(0x2E80, 0xA000),  # Han, kana, bopomofo
    range(0xA960, 0xA980),
    range(0xAC00, 0xD800),
    range(0xF900, 0xFB00),
    range(0xFF66, 0xFFDD),
    range(0x1B000, 0x1B170),
    range(0x20000, 0x32000),
)
_SPACES: Final = " \t\n\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\u2800" + "".join(
    map(chr, range(0x2000, 0x200B))
)


class Folded(NamedTuple):
    """A text in its one spelling."""

    codes: Codes
    """Its characters."""
    offsets: Offsets | None
    """For each of them its place in the original; None = the same place."""
    classes: npt.NDArray[np.uint8]
    """Of the original's characters."""

    def text(self) -> str:
        """The characters as text."""
        return decode(self.codes)

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Where what is at ``start`` to ``end`` was, ``end`` being greater than ``start``."""
        if self.offsets is None:
            return start, end
        return int(self.offsets[start]), int(self.offsets[end - 1]) + 1

    def splits(self, start: int, end: int) -> bool:
        """Whether one of the bounds lies inside what is one character of the original."""
        if self.offsets is None:
            return False
        offsets = self.offsets
        return bool(
            (start > 0 and offsets[start - 1] == offsets[start])
            or (end < len(offsets) and offsets[end - 1] == offsets[end])
        )


class _AsciiTable(NamedTuple):
    """What ``bytes.translate`` takes."""

    pieces: bytes
    classes: bytes
    hidden: bytes
    """Characters that are folded away."""


class _Table(NamedTuple):
    first: npt.NDArray[np.uint32]
    """Code point -> where in ``pieces`` its folding begins."""
    lengths: npt.NDArray[np.uint8]
    pieces: Codes


def encode(text: str) -> Codes:
    """The code points of a text."""
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8).astype(np.uint32)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint32, copy=False)


def decode(codes: Codes) -> str:
    """The text of code points."""
    if codes.dtype == np.uint8:
        return codes.tobytes().decode("latin-1")
    return codes.astype("<u4", copy=False).tobytes().decode("utf-32-le", "surrogatepass")


def fold(text: str, *, cased: bool = False) -> Folded:
    """The one spelling of a text; with ``cased`` large and small letters stay different."""
    if text.isascii():
        return _fold_ascii(text.encode(), _ascii(cased))
    # Looking up places of this type takes half the time of others.
    codes = encode(text).astype(np.intp)
    table = _table(cased)
    lengths = table.lengths[codes]
    seen = classes()[codes]
    offsets: Offsets | None = None
    if bool((lengths > 1).any()):
        offsets = np.repeat(np.arange(len(codes)), lengths)
        within = np.arange(len(offsets)) - (counted(lengths) - lengths)[offsets]
        folded = table.pieces[table.first[codes[offsets]] + within]
    elif bool(lengths.all()):
        folded = table.pieces[table.first[codes]]
    else:
        offsets = np.flatnonzero(lengths)
        folded = table.pieces[table.first[codes[offsets]]]
    return _without_spaces(Folded(folded, offsets, seen))


def counted(values: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Sums up to each place, as ``cumsum`` has them, which takes eight times as long for other types."""
    return values.astype(np.int32).cumsum(dtype=np.int32)


def _without_spaces(found: Folded) -> Folded:
    """Of spaces in a row only the first one."""
    spaces = found.codes == 32
    again = spaces[1:] & spaces[:-1]
    if not bool(again.any()):
        return found
    keep = np.concatenate((np.ones(1, np.bool_), ~again))
    offsets = np.flatnonzero(keep) if found.offsets is None else found.offsets[keep]
    return Folded(found.codes[keep], offsets, found.classes)


def _fold_ascii(raw: bytes, table: _AsciiTable) -> Folded:
    """The same by tables of bytes, which take a tenth of the time."""
    seen = np.frombuffer(raw.translate(table.classes), np.uint8)
    folded = raw.translate(table.pieces)
    offsets: Offsets | None = None
    codes = np.frombuffer(folded, np.uint8)
    if len(raw.translate(None, table.hidden)) != len(raw):
        offsets = np.flatnonzero(seen & HIDDEN == 0)
        codes = codes[offsets]
    found = Folded(codes, offsets, seen)
    return found if offsets is None and b"  " not in folded else _without_spaces(found)


def classes_of(codes: Codes) -> npt.NDArray[np.uint8]:
    """What these characters are, bits of ``WORD`` and the others."""
    if codes.dtype == np.uint8:
        return np.frombuffer(codes.tobytes().translate(_ascii(False).classes), np.uint8)
    return classes()[codes.astype(np.intp)]


def tags(text: str, found: Folded) -> Folded | None:
    """What tags spell, invisible as they are; None = there are none."""
    places = np.flatnonzero(found.classes & TAG)
    if not len(places):
        return None
    codes = encode(text)[places] - np.uint32(0xE0000)
    folded = fold(decode(codes))
    offsets = places if folded.offsets is None else places[folded.offsets]
    return Folded(folded.codes, offsets, found.classes)


@lru_cache(maxsize=1)
def classes() -> npt.NDArray[np.uint8]:
    """Code point -> what it is, bits of ``WORD`` and the others."""
    table = np.zeros(_LAST, np.uint8)
    for code in _assigned():
        character = chr(code)
        category = unicodedata.category(character)
        if character.isalnum():
            table[code] = WORD | LETTER
        elif category[0] == "M":
            table[code] = WORD
        elif category == "Cf" or (category == "Cc" and character not in _SPACES):
            table[code] = HIDDEN
    for span in _UNSPACED:
        table[span.start : span.stop] &= ~np.uint8(WORD) & np.uint8(0xFF)
    for code in (*_FILLERS, *_SELECTORS):
        table[code] = HIDDEN
    for code in _ALPHABET_MARKS:
        if unicodedata.category(chr(code)) in {"Mn", "Me", "Lm"}:
            table[code] = HIDDEN | DECORATION | WORD
    table[0xAD] = HIDDEN | WORD
    table[0xE0000:0xE0080] = HIDDEN | TAG
    table[list(DIGITS)] |= DIGIT
    table[list(FOREIGN)] |= FOREIGN_LOOK
    table[list(_plain())] |= OTHER_DIGIT
    return table


def plain_digits(text: str) -> str:
    """The text with digits and full-width characters as those of ASCII, one for one: places stay."""
    codes = encode(text)
    others = np.flatnonzero(classes()[codes] & OTHER_DIGIT)
    if not len(others):
        return text
    plain = codes.copy()
    plain[others] = [_plain()[code] for code in codes[others].tolist()]
    return decode(plain)


@lru_cache(maxsize=1)
def _plain() -> dict[int, int]:
    digits = {
        code: 0x30 + unicodedata.decimal(chr(code)) for code in range(0x80, 0x1FC00) if chr(code).isdecimal()
    }
    return digits | {0xFEE0 + code: code for code in range(0x21, 0x7F)}


@lru_cache(maxsize=1)
def likenesses() -> Codes:
    """Code point after folding -> the Latin letter it stands for or looks like, or itself."""
    table = np.arange(_LAST, dtype=np.uint32)
    for code, letter in (FOREIGN | DIGITS).items():
        table[code] = ord(letter)
    table[ord("l")] = table[table == ord("l")] = ord("i")
    return table


@lru_cache(maxsize=2)
def _ascii(cased: bool) -> _AsciiTable:
    table, seen = _table(cased), classes()[:256]
    pieces = bytes(table.pieces[table.first[code]] if code < 0x80 else 0 for code in range(256))
    hidden = bytes(code for code in range(0x80) if table.lengths[code] == 0)
    return _AsciiTable(pieces, seen.tobytes(), hidden)


@lru_cache(maxsize=2)
def _table(cased: bool) -> _Table:
    first = np.arange(_LAST, dtype=np.uint32)
    lengths = np.ones(_LAST, np.uint8)
    more: list[int] = []
    hidden = classes() & HIDDEN != 0
    for code in _foldable():
        character = chr(code)
        folded = _fold_one(character, cased)
        if len(folded) == 1:
            first[code] = ord(folded)
        elif folded != character:
            first[code] = _LAST + len(more)
            lengths[code] = len(folded)
            more.extend(map(ord, folded))
    lengths[hidden] = 0
    pieces = np.concatenate((np.arange(_LAST, dtype=np.uint32), np.array(more, np.uint32)))
    return _Table(first, lengths, pieces)


def _fold_one(character: str, cased: bool) -> str:
    code = ord(character)
    if character in _SPACES:
        return " "
    small = unicodedata.normalize("NFKD", character)
    small = small if cased else small.casefold()
    table: Any = classes()
    bare = "".join(SHAPES.get(ord(c), c) for c in small if not table[ord(c)] & DECORATION)
    if code in SHAPES:
        bare = SHAPES[code]
    elif not cased and (shape := character.casefold()) != character and ord(shape[0]) in SHAPES:
        bare = SHAPES[ord(shape[0])]
    return unicodedata.normalize("NFC", bare)[:8] or character


def _assigned() -> range:
    return range(0x32000)


def _foldable() -> list[int]:
    """Code points that may fold to anything but themselves."""
    plain = (range(0x3400, 0xA000), range(0xAC00, 0xF900), range(0x12000, 0x16A00), range(0x17000, 0x1D000))
    skipped = {code for span in plain for code in span}
    return [code for code in (*range(0x20000), *range(0x2F800, 0x2FA20)) if code not in skipped]
