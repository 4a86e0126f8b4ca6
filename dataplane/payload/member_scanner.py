"""Find where members of JSON objects say a certain text, in JSON that comes in pieces.

A match is a string at one of the given paths that says exactly the text wanted, however it and its keys are
spelt; the same text in any other place, such as generated content, is none. A piece may end anywhere. Only a
key or value that may be wanted and is not yet complete has to be shown again with the next piece: less than
``MAX_HELD_BYTES``, and never more than the longest spelling of what is looked for.

Text that is no JSON object has no matches. One text may follow another, as in JSON lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

from dataplane.payload.json_text import BETWEEN_BRACKETS, SPACE, STRING, says

MAX_TEXT_BYTES: Final = 1024
"""Longest text that can be looked for, in UTF-8."""

_ESCAPE_BYTES: Final = 6
"""Of the longest spelling of one UTF-16 code unit, of which a text has no more than bytes in UTF-8."""

MAX_HELD_BYTES: Final = 2 + _ESCAPE_BYTES * MAX_TEXT_BYTES

_TO_TOKEN: Final = re.compile(rb'[^"{}\[\]]*+')
_IN_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_PLAIN_MEMBER: Final = re.compile(
    rb'[ \t\r\n,]*+"([^"\\]*+)"[ \t\r\n]*+:[ \t\r\n]*+(?:"([^"\\]*+)"|[-+.0-9A-Za-z]++(?=[ \t\r\n,}]))'
)
"""A whole member with a scalar value and no escapes: most members are, and one step suffices for them."""

_QUOTE: Final = 0x22
_COLON_BYTE: Final = 0x3A
_OPEN_BRACE: Final = 0x7B
_CLOSE_BRACE: Final = 0x7D
_OPENING: Final = b"{["

Spans = list[tuple[int, int]]
Tree = dict[bytes, "Tree"]
"""Keys on the way to wanted members; a wanted member has an empty tree."""


class _State(IntEnum):
    """What comes next."""

    ROOT = 0
    KEY = 1
    """A key, or the end of an object on a path."""
    COLON = 2
    VALUE = 3
    SKIP = 4
    """Something within a value that is on no path."""
    STRING = 5
    """The rest of a string that cannot match."""
    LOST = 6
    """The rest of something that is no JSON object."""


# Bound once: looking an enum's member up on its class costs as much as a call.
_ROOT: Final = _State.ROOT
_KEY: Final = _State.KEY
_COLON: Final = _State.COLON
_VALUE: Final = _State.VALUE
_SKIP: Final = _State.SKIP
_STRING: Final = _State.STRING
_LOST: Final = _State.LOST


class MemberScanner:
    """Reads one text after the other, piece by piece."""

    __slots__ = (
        "_after",
        "_child",
        "_depth",
        "_escaped",
        "_held",
        "_longest_key",
        "_longest_value",
        "_node",
        "_parents",
        "_raw",
        "_state",
        "_text",
        "_tree",
    )

    def __init__(self, paths: Sequence[Sequence[str]], text: str) -> None:
        """Look for ``text`` at ``paths``, each a sequence of keys. ``ValueError`` when it is too long."""
        self._text = text
        self._raw = text.encode()
        if len(self._raw) > MAX_TEXT_BYTES:
            raise ValueError(f"the text has more than {MAX_TEXT_BYTES} bytes")
        self._tree: Tree = {}
        for path in paths:
            node = self._tree
            for key in path:
                node = node.setdefault(key.encode(), {})
        self._longest_key = 2 + _ESCAPE_BYTES * max(len(key) for path in paths for key in path)
        self._longest_value = 2 + _ESCAPE_BYTES * len(self._raw)
        self._held = 0
        self.start_text()

    def start_text(self) -> None:
        """Forget what has come so far: another text begins."""
        self._state = _ROOT
        self._node = self._tree
        self._parents: list[Tree] = []
        self._child: Tree | None = None
        self._depth = 0
        self._after = _KEY
        self._escaped = False

    def end_line(self, cut: bool) -> None:
        """A line break: the text goes on behind it, but no token does; ``cut``: one was to be shown again."""
        if cut or self._state is _STRING:
            self._state = _LOST

    def scan(self, data: bytes, at: int, end: int, found: Spans) -> int:
        """Read ``data[at:end]``; add the spans of matches, quotes included, to ``found``.

        Answers from where on the bytes have to be shown again; ``end`` when none have to.
        """
        self._held = end
        while at < end:
            at = _STEPS[self._state](self, data, at, end, found)
        return self._held

    def _root(self, data: bytes, at: int, end: int, found: Spans) -> int:
        at = _over(SPACE, data, at, end)
        if at == end:
            return end
        if data[at] != _OPEN_BRACE:
            self._state = _LOST
            return end
        self._node = self._tree
        self._state = _KEY
        return at + 1

    def _key(self, data: bytes, at: int, end: int, found: Spans) -> int:
        plain = _PLAIN_MEMBER.match(data, at, end)
        if plain is not None:
            if plain[2] == self._raw and self._node.get(plain[1]) == {}:
                found.append((plain.start(2) - 1, plain.end(2) + 1))
            return plain.end()
        at = _over(_TO_TOKEN, data, at, end)
        if at == end:
            return end
        byte = data[at]
        if byte == _QUOTE:
            token = STRING.match(data, at, end)
            if token is None:
                return self._hold(at, end, self._longest_key, _COLON)
            self._child = self._node.get(_unquoted(token[0]))
            self._state = _COLON
            return token.end()
        if byte != _CLOSE_BRACE:
            self._state = _LOST
            return end
        if self._parents:
            self._node = self._parents.pop()
        else:
            self._state = _ROOT
        return at + 1

    def _colon(self, data: bytes, at: int, end: int, found: Spans) -> int:
        at = _over(SPACE, data, at, end)
        if at == end:
            return end
        if data[at] != _COLON_BYTE:
            self._state = _LOST
            return end
        self._state = _VALUE
        return at + 1

    def _value(self, data: bytes, at: int, end: int, found: Spans) -> int:
        at = _over(SPACE, data, at, end)
        if at == end:
            return end
        byte = data[at]
        child = self._child
        if byte == _QUOTE:
            if child != {}:
                return self._pass_string(at, _KEY)
            token = STRING.match(data, at, end)
            if token is None:
                return self._hold(at, end, self._longest_value, _KEY)
            if says(token[0], self._text):
                found.append(token.span())
            self._state = _KEY
            return token.end()
        if byte not in _OPENING:
            self._state = _KEY  # which passes over what is left of a scalar
            return at
        if byte == _OPEN_BRACE and child:
            self._parents.append(self._node)
            self._node = child
            self._state = _KEY
        else:
            self._depth = 1
            self._state = _SKIP
        return at + 1

    def _skip(self, data: bytes, at: int, end: int, found: Spans) -> int:
        while self._depth:
            at = _over(BETWEEN_BRACKETS, data, at, end)
            if at == end:
                return end
            byte = data[at]
            if byte == _QUOTE:
                return self._pass_string(at, _SKIP)
            self._depth += 1 if byte in _OPENING else -1
            at += 1
        self._state = _KEY
        return at

    def _string(self, data: bytes, at: int, end: int, found: Spans) -> int:
        if self._escaped:
            self._escaped = False
            at += 1
        at = _over(_IN_STRING, data, at, end)
        if at == end:
            return end
        if data[at] == _QUOTE:
            self._state = self._after
        else:
            self._escaped = True
        return at + 1

    def _lost(self, data: bytes, at: int, end: int, found: Spans) -> int:
        return end

    def _hold(self, at: int, end: int, longest: int, after: _State) -> int:
        """Wait for the rest of the string at ``at``, unless it is too long already to be what is wanted."""
        if end - at < longest:
            self._held = at
            return end
        self._child = None
        return self._pass_string(at, after)

    def _pass_string(self, at: int, after: _State) -> int:
        self._state = _STRING
        self._after = after
        return at + 1


_STEPS: Final[tuple[Callable[[MemberScanner, bytes, int, int, Spans], int], ...]] = (
    MemberScanner._root,
    MemberScanner._key,
    MemberScanner._colon,
    MemberScanner._value,
    MemberScanner._skip,
    MemberScanner._string,
    MemberScanner._lost,
)
"""By state."""


def _over(pattern: re.Pattern[bytes], data: bytes, at: int, end: int) -> int:
    """Where something that matches anywhere ends."""
    return pattern.match(data, at, end).end()  # type: ignore[union-attr]


def _unquoted(token: bytes) -> bytes:
    """What a key says."""
    if b"\\" not in token:
        return token[1:-1]
    try:
        return str(json.loads(token)).encode("utf-8", "surrogatepass")
    except ValueError:
        return b""
