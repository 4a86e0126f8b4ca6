"""Every text of a JSON body, with its path and its place in the bytes.

One pass over the bytes, no decoding of the whole: a text that is changed is one token that gets another
spelling, and every other byte stays as it was written. Of members that stand twice in an object both are
seen, since readers differ in which they believe. The bytes have been judged by a strict decoder before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dataplane.payload.json_text import BETWEEN_BRACKETS, string, string_end
from ipp.guardrails.files import text_file
from ipp.guardrails.shapes import DATA, TURN, Kind, Shape

MAX_DEPTH: Final = 64
"""Objects and arrays within one another; no API nests more than a dozen."""
MAX_DIGITS: Final = 400
"""Of a whole number; others are infinite to whoever reads them as floating-point numbers."""
MAX_TEXTS: Final = 100_000
"""Texts in one body."""

Keys = tuple["bytes | int", ...]
"""The way to a value: keys in UTF-8, and indices."""

_KEY: Final = re.compile(rb'[ \t\r\n,]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\r\n]*+:[ \t\r\n]*+', re.DOTALL)
_TO_ITEM: Final = re.compile(rb"[ \t\r\n,]*+")
_NO_TEXT: Final = re.compile(rb'[^"\[\]{}]*+')
"""Numbers, literals and commas of an array."""
_SCALAR: Final = re.compile(rb'[^ \t\r\n,}\]"]++')
_NAME: Final = re.compile(rb'"(?:[A-Za-z_][A-Za-z0-9_.:/+-]{0,63}+)?+"')
_ROLE: Final = rb'role"~:~"[A-Za-z_][A-Za-z0-9_.:/+-]{0,63}+"~,~"(content)'
_TURN: Final = re.compile(
    rb'[ \t\r\n,]*+\{~"(?:%b|type"~:~"text"~,~"(text))"~:~(?=")'.replace(b"~", rb"[ \t\r\n]*+")
    % _ROLE.replace(b"~", rb"[ \t\r\n]*+")
)
"""A message or a part of one as nearly all are written, up to its text."""
_BACKSLASH: Final = 0x5C
_BRACE: Final = 0x7D
_CLOSE: Final = re.compile(rb"[ \t\r\n]*+\}")
_LINK: Final = re.compile(rb'"(?:https?|gs|s3):(?:\\?/){2}', re.IGNORECASE)
_FILE: Final = re.compile(rb'"data:|"(?:[A-Za-z0-9+/=_-]|\\[/nr])*+"', re.IGNORECASE)
"""What media are given as: a URL that names them, or one that holds them, or base64."""
_SAID: Final = frozenset({b"content", b"text", b"prompt", b"input", b"system", b"instructions"})
_UNSAID: Final = frozenset({b"tools", b"functions", b"arguments", b"summary", b"tool_calls"})
_TYPES: Final = frozenset({b"type", b"media_type", b"mimeType", b"mime_type"})


class UnreadableError(ValueError):
    """The body is no JSON, or made to keep us busy; the message says which, for the client."""


class NoJsonError(UnreadableError):
    """The body is no JSON."""


class Text(NamedTuple):
    """One text in a body."""

    keys: Keys
    kind: Kind
    """``TEXT``, ``JSON``, ``FILE``, or ``DATA`` for a number or literal, whose token has no quotes."""
    start: int
    """Where its token begins in the bytes, quotes included."""
    end: int

    def read(self, body: bytes) -> str:
        """What it says."""
        token = body[self.start : self.end]
        if self.kind is Kind.DATA:
            return token.decode()
        said = unquoted(token)
        file = text_file(said, is_text=True) if self.kind is Kind.FILE else None
        return said if file is None else file.words

    def saying(self, body: bytes, words: str) -> bytes:
        """The token that says something else in the same way."""
        file = None
        if self.kind is Kind.FILE:
            file = text_file(unquoted(body[self.start : self.end]), is_text=True)
        return token(words if file is None else file.saying(words))


class Texts(NamedTuple):
    """What a pass over a body finds."""

    texts: list[Text]
    details: list[tuple[Keys, int, int]]
    """Values that say texts beside them in another form, with their places."""
    repeats: bool
    """Whether an object has two members with one name."""


def decoded(body: bytes, *, is_strict: bool = True) -> Any:
    """The body as JSON. ``UnreadableError`` says what is wrong with it.

    What is not strict takes what other writers make of numbers that are none, and of half characters.
    """
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise UnreadableError(f"is nested deeper than {MAX_DEPTH} levels") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if is_strict:
            raise NoJsonError(f"is no JSON: {error}") from None
    try:
        return json.loads(body.decode("utf-8", "replace"), parse_int=number)
    except RecursionError:
        raise UnreadableError(f"is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise NoJsonError(f"is no JSON: {error}") from None


def number(digits: str) -> float:
    """A whole number as far as anybody needs it; Python reads no more than some thousand digits."""
    return int(digits) if len(digits) < MAX_DIGITS else float(digits)


def unquoted(token: bytes) -> str:
    """What a whole string token says; half of a surrogate pair stays what it is."""
    if b"\\" not in token:
        return token[1:-1].decode("utf-8", "replace")
    try:
        return msgspec.json.decode(token, type=str)
    except msgspec.MsgspecError:
        found: str = json.loads(token.decode("utf-8", "replace"), strict=False)
        return found


def path_of(keys: Sequence[bytes | int]) -> str:
    """The way as people write it: ``messages[2].content``."""
    said = "".join(f"[{key}]" if isinstance(key, int) else f".{_readable(key)}" for key in keys)
    return said.removeprefix(".")


def _readable(key: bytes) -> str:
    """A key a client wrote may be anything; a name in a log is short, and the text itself is in none."""
    return key.decode() if _NAME.fullmatch(b'"%b"' % key) else "*"


def is_said(text: Text) -> bool:
    """Whether it is what people and models say to one another, or what is looked up or put into numbers."""
    names = [key for key in text.keys if isinstance(key, bytes)]
    return bool(names) and text.kind is Kind.TEXT and names[-1] in _SAID and not _UNSAID.intersection(names)


def edited(body: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """The body with these places, of which none lies in another, replaced."""
    if not edits:
        return body
    pieces: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits):
        pieces += (body[at:start], new)
        at = end
    pieces.append(body[at:])
    return b"".join(pieces)


def token(text: str) -> bytes:
    """A text as a token."""
    return string(text)


def without_details(found: Texts, body: bytes, changed: Sequence[Keys]) -> list[tuple[int, int, bytes]]:
    """Edits that take away what says the changed texts in another form."""
    edits: list[tuple[int, int, bytes]] = []
    for keys, start, end in found.details:
        around = keys[:-1]
        if any(path[: len(around)] == around for path in changed):
            edits.append((start, end, b"[]" if body[start : start + 1] == b"[" else b"null"))
    return edits


class _Level:
    """An object or array that is being read."""

    __slots__ = ("index", "is_literal", "is_object", "is_text", "keys", "media", "shape")

    def __init__(self, shape: Shape, is_object: bool) -> None:
        self.shape = shape
        self.is_object = is_object
        self.index = -1
        self.keys: set[bytes] = set()
        self.media: list[Text] = []
        self.is_text = False
        """Whether a type among its members says that what looks like media is text."""
        self.is_literal = False
        """Whether it says so of what stands there as it stands there."""


def find_texts(body: bytes, shape: Shape, limit: int = MAX_TEXTS) -> Texts:
    """All texts of a valid JSON body of this shape, in its order. ``UnreadableError`` past a cap."""
    return _Pass(body, limit).run(shape)


class _Pass:
    """One pass over a body."""

    def __init__(self, body: bytes, limit: int) -> None:
        self._body = body
        self._limit = limit
        self._path: list[bytes | int] = []
        self._levels: list[_Level] = []
        self._texts: list[Text] = []
        self._details: list[tuple[Keys, int, int]] = []
        self._has_media = False
        self._repeats = False

    def run(self, shape: Shape) -> Texts:
        body, levels = self._body, self._levels
        at = self._value(_TO_ITEM.match(body).end(), b"", shape)  # type: ignore[union-attr]  # matches anything
        while levels:
            level = levels[-1]
            inner = level.shape
            if level.is_object:
                found = _KEY.match(body, at)
                if found is None:
                    at = self._close(at)
                    continue
                key, shape = self._key(found, inner)
                if key in level.keys:
                    self._repeats = True
                level.keys.add(key)
                at = self._value(found.end(), key, shape)
                continue
            if inner.items is TURN:
                at = self._turns(at, level)
            begin = at
            at = (_TO_ITEM if inner.kind is Kind.DATA else _NO_TEXT).match(body, at).end()  # type: ignore[union-attr]
            if body[at : at + 1] in (b"]", b""):
                at = self._close(at)
                continue
            level.index += (
                body.count(b",", begin, at) if level.index >= 0 else 1 + body.count(b",", begin, at)
            )
            at = self._value(at, level.index, inner.items)
        if self._has_media:
            self._texts.sort(key=lambda text: text.start)
        return Texts(self._texts, self._details, self._repeats)

    def _turns(self, at: int, level: _Level) -> int:
        """Read items as far as they are written as nearly all are; answers where another one begins."""
        body, path = self._body, self._path
        if len(self._levels) >= MAX_DEPTH:
            return at
        texts, find = self._texts, body.find
        while (turn := _TURN.match(body, at)) is not None:
            begin = turn.end()
            end = find(b'"', begin + 1) + 1
            if body[end - 2] == _BACKSLASH:
                end = string_end(body, begin)
            if body[end] == _BRACE:
                at = end + 1
            elif (over := _CLOSE.match(body, end)) is not None:
                at = over.end()
            else:
                break
            level.index += 1
            texts.append(Text((*path, level.index, turn[1] or turn[2]), Kind.TEXT, begin, end))
        self._count()
        return at

    def _key(self, found: re.Match[bytes], shape: Shape) -> tuple[bytes, Shape]:
        """What a member is called, and what it is; keys that do not look like names are text."""
        quoted = found[1]
        key = unquoted(quoted).encode("utf-8", "replace") if b"\\" in quoted else quoted[1:-1]
        known = shape.members.get(key)
        if known is None and (shape.kind is Kind.DATA or _NAME.fullmatch(b'"%b"' % key) is None):
            self._add(Text((*self._path, b"*"), Kind.TEXT, found.start(1), found.end(1)))
        return key, known or shape.other

    def _value(self, at: int, key: bytes | int, shape: Shape) -> int:
        """Read a value, or enter it; answers where it ends or its inside begins."""
        body, kind = self._body, shape.kind
        first = body[at : at + 1]
        if first == b'"':
            end = string_end(body, at)
            if kind < Kind.SKIP or kind is Kind.DATA:
                self._string(at, end, key, kind)
            elif kind is Kind.DETAIL:
                self._details.append(((*self._path, key), at, end))
            return end
        if first in (b"{", b"["):
            if kind is Kind.SKIP or kind is Kind.DETAIL:
                end = self._over(at)
                if kind is Kind.DETAIL:
                    self._details.append(((*self._path, key), at, end))
                return end
            if kind is Kind.JSON:
                shape = DATA  # what others write in a string
            if len(self._levels) >= MAX_DEPTH:
                raise UnreadableError(f"is nested deeper than {MAX_DEPTH} levels")
            if self._levels:
                self._path.append(key)
            self._levels.append(_Level(shape, first == b"{"))
            return at + 1
        end = _SCALAR.match(body, at).end()  # type: ignore[union-attr]  # the body is valid
        if kind is Kind.DATA:
            self._add(Text((*self._path, key), Kind.DATA, at, end))
        return end

    def _string(self, at: int, end: int, key: bytes | int, kind: Kind) -> None:
        body = self._body
        level = self._levels[-1] if self._levels else None
        if kind is Kind.NAME:
            if _NAME.fullmatch(body, at, end):
                if key in _TYPES and level is not None and _says_text(body[at:end]):
                    level.is_text = True
                    level.is_literal |= key == b"type"
                return
            kind = Kind.TEXT
        keys: Keys = (*self._path, key) if level is not None else ()
        if kind is Kind.MEDIA:
            if level is not None and (_LINK.match(body, at, end) or _FILE.match(body, at, end)):
                level.media.append(Text(keys, Kind.TEXT, at, end))
                return
            kind = Kind.TEXT
        self._add(Text(keys, Kind.TEXT if kind is Kind.DATA else kind, at, end))

    def _add(self, text: Text) -> None:
        self._texts.append(text)
        self._count()

    def _count(self) -> None:
        if len(self._texts) > self._limit:
            raise UnreadableError(f"has more than {self._limit} texts")

    def _close(self, at: int) -> int:
        level = self._levels.pop()
        if self._levels:
            self._path.pop()
        if level.media:
            self._media(level)
        return _TO_ITEM.match(self._body, at).end() + 1  # type: ignore[union-attr]  # matches anything

    def _media(self, level: _Level) -> None:
        """Add what is text of the media of an object, now that all its members are known."""
        self._has_media = True
        for text in level.media:
            quoted = self._body[text.start : text.end]
            is_held = not level.is_literal and _LINK.match(quoted) is None
            if is_held and text_file(unquoted(quoted), is_text=level.is_text) is not None:
                self._add(text._replace(kind=Kind.FILE))
            elif level.is_text:
                self._add(text)

    def _over(self, at: int) -> int:
        """The end of the object or array that begins here."""
        body, depth = self._body, 0
        while True:
            depth += 1 if body[at] in b"{[" else -1
            at += 1
            if not depth:
                return at
            at = BETWEEN_BRACKETS.match(body, at).end()  # type: ignore[union-attr]  # matches anything


def _says_text(quoted: bytes) -> bool:
    return quoted.startswith((b'"text', b'"content"'))


def first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))
