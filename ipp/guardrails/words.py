"""Many words looked for at once, and seen through disguises: behind keywords, topics and injection.

One Aho-Corasick automaton goes over the folded text (``normalize``), however many words there are. Three
more look where a disguise is possible at all, and cost nothing elsewhere:

    likeness   digits, signs and letters of other scripts in place of letters: k1ll, or with a Cyrillic i
    spelled    letters one by one: k i l l, k-i-l-l
    encoded    base64, two layers deep; what is found there spans the groups of four that hold it

A find through likeness counts only when it says that it is a disguise: enough letters are what they seem,
or, where all of them belong to another script, the word is long. Latin "pot" is not found in a Russian word
of three letters that look so, nor "ass" in "A55".

``bounded`` finders are for streams: at most ``MAX_HIDDEN`` characters more than the word has letters may
stand in a find, and nothing is decoded, since what base64 says depends on where it begins.
"""

from __future__ import annotations

import binascii
import bisect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import ahocorasick
import numpy as np
import numpy.typing as npt
import re2

from dataplane.errors import ConfigError
from ipp.guardrails import normalize
from ipp.guardrails.normalize import Codes, Folded
from ipp.guardrails.scanning import locating

MAX_HIDDEN: Final = 64
"""Characters that a find in a stream may hold beside the word's own: invisible ones, spaces, marks."""
MAX_GAP: Final = 3
"""Characters between two letters of a word that is spelled."""
MIN_SPELLED: Final = 3
"""Letters of the shortest word that is looked for spelled."""
MIN_ENCODED: Final = 12
"""Characters of the shortest base64 that is decoded."""
MAX_LAYERS: Final = 2
_PRINTABLE_SHARE: Final = 0.8
_FOREIGN_ALONE: Final = 6
"""Letters from which on a word may be written in another script's letters only."""

_NOTHING: Final = np.zeros(1, np.uint8)
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
_ENCODED: Final = locating(re2.compile(rb"[A-Za-z0-9+/_-]{%d,}" % MIN_ENCODED))
MAX_SHORT: Final = 2000
"""Characters up to which regular expressions are quicker than arrays."""
_NO_TEXT: Final = frozenset(b"ghijklmnopqrstuv+/-_")
"""What base64 does not begin with whose first byte begins a character of UTF-8."""
AT_ONCE: Final = 1 << 16
"""Characters that an automaton goes over without a pause: a millisecond's work."""
_SPACES: Final = str.maketrans("\t\n\v\f\r\x1c\x1d\x1e\x1f", " " * 9)
_ODD: Final = re.compile(r"[\x00-\x1f`\x7f]|  ")
"""What of ASCII does not fold to itself, but for case."""
_DIGITS: Final = re.compile(r"[a-z][0-9@$!]|[0-9@$!][a-z]")
_LETTERS: Final = re.compile(r"(?<![a-z0-9])[a-z0-9](?:[^a-z0-9]{1,3}[a-z0-9](?![a-z0-9])){2}")
_BREAK: Final = 10
"""Between runs of letters; no folded text and no word holds it."""
_SEPARATOR: Final = "\U0010ffff"
"""Between words that are folded together."""


class Hit(NamedTuple):
    """A word in the text."""

    start: int
    end: int
    word: int
    """Its index in the list."""
    disguised: bool = False
    """Whether it was written so that a plain search misses it."""


class WordFinder:
    """Finds any of a list of words; one instance for all texts."""

    def __init__(
        self, words: Sequence[str], *, cased: bool = False, whole: bool = True, bounded: bool = False
    ) -> None:
        """``whole``: a word inside a longer one does not count, in scripts that put spaces between words.

        A word of which nothing is left once it is folded is refused with a ``ConfigError`` for its index.
        """
        self._cased, self._whole, self._bounded = cased, whole, bounded
        self._folded = _fold_all(words, cased=cased)
        self._reach = max(map(len, self._folded))
        first: dict[str, list[int]] = {}
        for index, text in enumerate(self._folded):
            first.setdefault(text, [index])
        self.reported = [first[text][0] for text in self._folded]
        """For each word the one that finds of it name: the first that folds to the same."""
        self._plain = _automaton(first)
        self._likeness: Any = None
        self._spelled: Any = None
        if not cased:
            indices = [index for (index,) in first.values()]
            self._letters = _letters(self._folded)
            self._likeness = _automaton(_by_likeness(self._folded, indices))
            long = [index for index in indices if len(self._letters[index]) >= MIN_SPELLED]
            self._spelled = _automaton(_by_likeness(self._letters, long)) if long else None

    @property
    def longest(self) -> int:
        """Most characters that a find of a bounded finder spans."""
        return self._reach + MAX_HIDDEN

    def find(self, text: str, start: int = 0) -> list[Hit]:
        """All that begins at ``start`` or later, by every way of writing, overlapping, in no order."""
        context = max(start - 1, 0)
        found = self._search(text[context:] if context else text, 0 if self._bounded else MAX_LAYERS)
        if context:
            found = [Hit(h.start + context, h.end + context, h.word, h.disguised) for h in found]
        return [hit for hit in found if hit.start >= start] if start else found

    def _search(self, text: str, layers: int) -> list[Hit]:
        if len(text) <= MAX_SHORT and text.isascii():
            plain = text.translate(_SPACES)
            if _ODD.search(plain) is None:
                hits = self._search_short(plain if self._cased else plain.lower())
                return [*hits, *self._search_encoded(text, layers)] if layers else hits
        folded = normalize.fold(text, cased=self._cased)
        hits = self._search_plain(folded)
        if hidden := normalize.tags(text, folded):
            hits += (hit._replace(disguised=True) for hit in self._search_plain(hidden))
        if self._likeness is not None:
            seen = normalize.classes_of(folded.codes)
            hits += self._search_likeness(folded, seen)
            if self._spelled is not None:
                hits += self._search_spelled(folded, seen)
        if layers:
            hits += self._search_encoded(text, layers)
        return hits

    def _search_plain(self, folded: Folded) -> list[Hit]:
        hits = []
        for last, (indices, size) in _occurrences(self._plain, folded.text()):
            hit = self._place(folded, last + 1 - size, last + 1, indices[0], disguised=False)
            if hit is not None:
                hits.append(hit)
        return hits

    def _search_short(self, plain: str) -> list[Hit]:
        """Short text of ASCII without anything to fold, as pieces of streams mostly are."""
        hits = []
        for last, (indices, size) in self._plain.iter(plain):
            start, end = last + 1 - size, last + 1
            if not self._whole or not (
                (start and plain[start].isalnum() and plain[start - 1].isalnum())
                or (end < len(plain) and plain[last].isalnum() and plain[end].isalnum())
            ):
                hits.append(Hit(start, end, indices[0]))
        digits = self._likeness is not None and _DIGITS.search(plain)
        letters = self._spelled is not None and _LETTERS.search(plain)
        if digits or letters:
            codes = normalize.encode(plain)
            seen = normalize.classes()[codes]
            folded = Folded(codes, None, seen)
            if digits:
                hits += self._search_likeness(folded, seen)
            if letters:
                hits += self._search_spelled(folded, seen)
        return hits

    def _place(self, folded: Folded, start: int, end: int, word: int, *, disguised: bool) -> Hit | None:
        """Where it stands in the original; None when it is no whole word or spans too much."""
        if folded.splits(start, end):
            return None
        first, last = folded.original(start, end)
        seen = folded.classes
        limit = min(len(seen), first + self.longest) if self._bounded else len(seen)
        if last > limit:
            return None
        after = last
        while after < limit and seen[after] & normalize.DECORATION:
            after += 1
        if self._whole and not (
            (first == 0 or not (seen[first] & seen[first - 1] & normalize.WORD))
            and (
                after == len(seen)
                or bool(seen[after] & normalize.DECORATION)
                or not (seen[last - 1] & seen[after] & normalize.WORD)
            )
        ):
            return None
        return Hit(first, after, word, disguised)

    def _search_likeness(self, folded: Folded, seen: npt.NDArray[np.uint8]) -> Iterator[Hit]:
        digit = seen & normalize.DIGIT != 0
        letter = (seen & normalize.LETTER != 0) & ~digit
        beside = (digit[1:] & letter[:-1]) | (digit[:-1] & letter[1:])
        places = np.flatnonzero(beside)
        foreign = np.flatnonzero(seen & normalize.FOREIGN_LOOK)
        if not len(places) and not len(foreign):
            return
        total = len(folded.codes)
        at = (
            np.arange(total) if total <= MAX_SHORT else self._around(np.concatenate((places, foreign)), total)
        )
        joined = normalize.likenesses()[folded.codes[at]]
        joined[1:][np.diff(at) != 1] = _BREAK
        for last, (indices, size) in _occurrences(self._likeness, normalize.decode(joined)):
            start, end = int(at[last + 1 - size]), int(at[last]) + 1
            for index in indices:
                if _is_disguise(folded.codes[start:end], normalize.encode(self._folded[index])):
                    hit = self._place(folded, start, end, index, disguised=True)
                    if hit is not None:
                        yield hit

    def _around(self, places: Places, size: int) -> Places:
        """All places within a word's reach of these, and one before, which a break may take."""
        begins = np.bincount(np.maximum(places - self._reach - 1, 0), minlength=size + 1)
        ends = np.bincount(np.minimum(places + self._reach + 1, size), minlength=size + 1)
        return np.flatnonzero(np.cumsum(begins - ends)[:-1])

    def _search_spelled(self, folded: Folded, seen: npt.NDArray[np.uint8]) -> Iterator[Hit]:
        places, breaks = _singles(folded, seen)
        if len(places) < MIN_SPELLED:
            return
        codes = folded.codes[places]
        run = np.cumsum(breaks)
        at = np.arange(len(places)) + run
        joined = np.full(int(at[-1]) + 1, _BREAK, np.uint32)
        joined[at] = normalize.likenesses()[codes]
        for last, (indices, size) in _occurrences(self._spelled, normalize.decode(joined)):
            first = int(np.searchsorted(at, last + 1 - size))
            spelled = codes[first : first + size]
            for index in indices:
                if not _is_spelling(spelled, normalize.encode(self._letters[index])):
                    continue
                start, end = folded.original(int(places[first]), int(places[first + size - 1]) + 1)
                if not self._bounded or end - start <= self.longest:
                    yield Hit(start, end, index, disguised=True)

    def _search_encoded(self, text: str, layers: int) -> Iterator[Hit]:
        found = list(encoded(text))
        if not found:
            return
        # One search for all of them: there may be thousands.
        bounds = list(itertools.accumulate((len(said) + 1 for _, _, said in found), initial=0))
        for hit in self._search(_SEPARATOR.join(said for _, _, said in found), layers - 1):
            which = bisect.bisect_right(bounds, hit.start) - 1
            (begin, size, said), base = found[which], bounds[which]
            first = len(said[: hit.start - base].encode()) // 3 * 4
            last = -(-len(said[: hit.end - base].encode()) // 3) * 4
            yield Hit(begin + first, begin + min(last, size), hit.word, disguised=True)


def encoded(text: str) -> Iterator[tuple[int, int, str]]:
    """Where base64 begins, how many characters it has, and what it says."""
    if len(text) < MIN_ENCODED:
        return
    # One byte for each character, so that places are those of the text.
    raw = text.encode("ascii", "replace")
    if not text.isascii():
        raw = raw.replace(b"?", b" ")
    at = 0
    while (found := _ENCODED(raw, at)) is not None:
        start, at = found
        if raw[start] in _NO_TEXT:
            continue
        said = decoded_text(raw[start:at])
        if said is not None:
            yield start, at - start, said


def decoded_text(token: bytes) -> str | None:
    """What base64 says; None when it is no base64, or says no text."""
    plain = token.translate(_URL_SAFE)
    try:
        decoded = binascii.a2b_base64(plain[: len(plain) // 4 * 4] + _rest(plain)).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    sample = decoded[:256]
    if sample.isprintable():
        return decoded
    printable = sum(c.isprintable() or c.isspace() for c in sample)
    return decoded if printable >= _PRINTABLE_SHARE * len(sample) else None


_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


def _rest(token: bytes) -> bytes:
    """The last, incomplete group, filled up; one character alone says nothing."""
    rest = token[len(token) // 4 * 4 :]
    return rest + b"=" * (4 - len(rest)) if len(rest) > 1 else b""


def _occurrences(words: Automaton, text: str) -> Iterator[tuple[int, tuple[list[int], int]]]:
    """Where words end, and which. Piece by piece, since no other thread runs while the automaton does.

    Each piece begins anew, as far before its own as a word may: an automaton that is given text of another
    width to go on with writes where it must not.
    """
    before = words.longest - 1
    for at in range(0, len(text), AT_ONCE):
        begin = max(at - before, 0)
        for last, value in words.iter(text[begin : at + AT_ONCE]):
            if begin + last >= at:
                yield begin + last, value


class Automaton(NamedTuple):
    """Finds words."""

    iter: Callable[[str], Iterator[tuple[int, tuple[list[int], int]]]]
    """Where each ends in a text, and what it is."""
    longest: int
    """Characters of the longest."""


def _automaton(words: dict[str, list[int]]) -> Automaton:
    automaton = ahocorasick.Automaton()
    for text, indices in words.items():
        automaton.add_word(text, (indices, len(text)))
    automaton.make_automaton()
    return Automaton(automaton.iter, max(map(len, words), default=1))


def _by_likeness(texts: Sequence[str], indices: Sequence[int]) -> dict[str, list[int]]:
    """What texts look like -> those that look so."""
    codes = normalize.encode(_SEPARATOR.join(texts))
    alike = normalize.decode(normalize.likenesses()[codes]).split(_SEPARATOR)
    found: dict[str, list[int]] = {}
    for index in indices:
        found.setdefault(alike[index], []).append(index)
    return found


def _fold_all(words: Sequence[str], *, cased: bool) -> list[str]:
    """Words in their one spelling; all at once, since there may be thousands."""
    for index, word in enumerate(words):
        if _SEPARATOR in word:
            raise ConfigError("holds U+10FFFF, which is no character", path=f"words[{index}]")
    texts = normalize.fold(_SEPARATOR.join(words), cased=cased).text().split(_SEPARATOR)
    folded = [text.strip(" ") for text in texts]
    if "" in folded:
        raise ConfigError("holds nothing that can be seen", path=f"words[{folded.index('')}]")
    return folded


def _letters(texts: Sequence[str]) -> list[str]:
    codes = normalize.encode(_SEPARATOR.join(texts))
    keep = (normalize.classes()[codes] & normalize.LETTER != 0) | (codes == ord(_SEPARATOR))
    return normalize.decode(codes[keep]).split(_SEPARATOR)


def _stands_for(text: Codes, word: Codes) -> tuple[Mask, Mask, bool]:
    """Where a digit, and where a letter of another script, stands for the word's; whether nothing else
    does."""
    seen = normalize.classes()
    other = text != word
    digit = other & (seen[text] & normalize.DIGIT != 0)
    foreign = other & ~digit & ((seen[text] | seen[word]) & normalize.FOREIGN_LOOK != 0)
    return digit, foreign, bool((other == (digit | foreign)).all())


def _is_disguise(text: Codes, word: Codes) -> bool:
    """Whether a text that looks like a word is meant to, and is not written as the word is."""
    digit, foreign, explained = _stands_for(text, word)
    digits, foreigners = int(digit.sum()), int(foreign.sum())
    if not explained or not digits + foreigners or text[-1] == ord("!"):
        return False
    letters = int((normalize.classes()[word] & normalize.LETTER != 0).sum())
    if digits:
        real = letters - digits
        return real > 0 and 4 * real >= letters and (letters >= 4 or real >= 2)
    return foreigners < letters or letters >= _FOREIGN_ALONE


def _is_spelling(text: Codes, word: Codes) -> bool:
    """Whether letters that were written one by one are the word's, half of them at least as they are."""
    digit, foreign, explained = _stands_for(text, word)
    return explained and 2 * int((digit | foreign).sum()) <= len(word)


def _singles(folded: Folded, seen: npt.NDArray[np.uint8]) -> tuple[Places, Mask]:
    """Letters that stand alone, and for each whether a new run of them begins there."""
    letter = seen & normalize.LETTER != 0
    alone = letter.copy()
    if folded.offsets is None:
        word = folded.classes & (normalize.LETTER | normalize.WORD) != 0
        alone[1:] &= ~word[:-1]
        alone[:-1] &= ~letter[1:]
    else:
        around = np.concatenate((_NOTHING, folded.classes, _NOTHING))
        alone &= around[folded.offsets] & (normalize.LETTER | normalize.WORD) == 0
        alone &= around[folded.offsets + 2] & normalize.LETTER == 0
    places = np.flatnonzero(alone)
    if len(places) < MIN_SPELLED:
        return places, alone[:0]
    counted = normalize.counted(letter)[places]
    breaks = np.ones(len(places), np.bool_)
    breaks[1:] = (np.diff(places) > MAX_GAP + 1) | (np.diff(counted) != 1)
    breaks[0] = False
    return places, breaks
