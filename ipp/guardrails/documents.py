"""Answers that are no JSON document but several, or half of one, or none.

Some APIs stream in lines of JSON or in an array, and an answer may break off. Every string of such a body is
looked at as what it says. What goes on from one document to the next is put together here; what is found over
the end of one cannot be masked there, so it is for the caller to withhold the whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ipp.guardrails.arguments import ArgumentsFinder
from ipp.guardrails.dialects import OTHER, Channel, is_arguments, read
from ipp.guardrails.finding import Finder, Found, PlainFinder, Searchers
from ipp.guardrails.shapes import ANSWER
from ipp.guardrails.texts import Keys, Text, Texts, find_texts, number, path_of

_BETWEEN: Final = re.compile(r"[\s,\x1e\ufeff]*+")
_DECODER: Final = json.JSONDecoder(parse_int=number)
_LOOKS_LIKE_JSON: Final = ("{", "[", '"')


class Document(NamedTuple):
    """One of several."""

    value: Any
    texts: list[Text]
    said: list[str]


def bare_finder(words: str, searchers: Searchers) -> Finder:
    """What follows a body that is not one JSON document."""
    begin = words.lstrip("\ufeff\x1e \t\r\n")
    return (ArgumentsFinder if begin.startswith(_LOOKS_LIKE_JSON) else PlainFinder)(searchers)


def documents(words: str) -> Iterator[Document]:
    """The JSON documents at the beginning of a body, up to what is none. ``UnreadableError`` past a cap."""
    at = _BETWEEN.match(words).end()  # type: ignore[union-attr]  # matches anything
    while at < len(words):
        try:
            value, end = _DECODER.raw_decode(words, at)
        except (ValueError, RecursionError):
            return
        data = words[at:end].encode("utf-8", "replace")
        found = find_texts(data, ANSWER)
        yield Document(value, found.texts, [text.read(data) for text in found.texts])
        at = _BETWEEN.match(words, end).end()  # type: ignore[union-attr]  # matches anything


def items(value: Sequence[Any], found: Texts, said: Sequence[str]) -> Iterator[Document]:
    """The same of the items of an array."""
    by_item: dict[bytes | int, tuple[list[Text], list[str]]] = {}
    for text, words in zip(found.texts, said, strict=True):
        if text.keys:
            texts, all_words = by_item.setdefault(text.keys[0], ([], []))
            texts.append(text._replace(keys=text.keys[1:]))
            all_words.append(words)
    for index, (texts, all_words) in by_item.items():
        if isinstance(index, int) and index < len(value):
            yield Document(value[index], texts, all_words)


def across(
    several: Iterator[Document], searchers: Searchers, *, only_known: bool = False
) -> Iterator[tuple[str, Found]]:
    """What is found over the end of a document: the path within each, and the find.

    ``only_known``: only of texts of which an API says that they go on.
    """
    pieces: dict[Channel, list[str]] = {}
    places: dict[Channel, tuple[Keys, bool]] = {}
    for document in several:
        reading = read(document.value, document.texts)
        for text, words, channel in zip(document.texts, document.said, reading.channels, strict=True):
            if channel is None or (only_known and channel[0] == OTHER):
                continue
            pieces.setdefault(channel, []).append(words)
            places.setdefault(channel, (text.keys, is_arguments(document.value, text)))
    for channel, parts in pieces.items():
        if len(parts) < 2:
            continue
        keys, is_json = places[channel]
        finder: Finder = (ArgumentsFinder if is_json else PlainFinder)(searchers)
        finder.feed("".join(parts), True)
        ends = set(accumulate(map(len, parts)))
        for found in finder.found:
            if any(found.start < end < found.end for end in ends):
                yield path_of(keys), found
