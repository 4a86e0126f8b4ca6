"""Set or remove fields of a JSON body in place: every byte that says something else stays as it was written.

Of members that stand twice in an object all are set or removed, since readers differ in which they believe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dataplane.payload.json_text import BETWEEN_BRACKETS, SPACE, STRING
from ipp.guardrails.matches import REMOVED, Change
from ipp.guardrails.texts import edited, token, unquoted

_KEY: Final = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\r\n]*+:[ \t\r\n]*+', re.DOTALL)
_SCALAR: Final = re.compile(rb'[^ \t\r\n,}\]"]++')


class _Member(NamedTuple):
    """A member of an object, or an item of an array."""

    key: str | int
    start: int
    value: int
    end: int


def changed(body: bytes, changes: Sequence[Change]) -> bytes:
    """The valid JSON body with these changes made, one after the other."""
    for change in changes:
        edits: list[tuple[int, int, bytes]] = []
        _change(body, _after_space(body, 0), change.keys, change.value, edits)
        body = edited(body, edits)
    return body


def _change(
    body: bytes, at: int, keys: Sequence[str | int], value: Any, edits: list[tuple[int, int, bytes]]
) -> None:
    """Edits that change what lies below the value at ``at``."""
    opening = body[at : at + 1]
    if opening not in (b"{", b"["):
        if value is not REMOVED:
            edits.append((at, end_of_value(body, at), _encoded(keys, value)))
        return
    members = list(_members(body, at))
    mine = [index for index, member in enumerate(members) if member.key == keys[0]]
    if len(keys) == 1 and value is REMOVED:
        edits += _removals(members, set(mine))
        return
    for member in (members[index] for index in mine):
        if len(keys) > 1:
            _change(body, member.value, keys[1:], value, edits)
        else:
            edits.append((member.value, member.end, msgspec.json.encode(value)))
    if not mine and value is not REMOVED and opening == b"{":
        comma = b"," if members else b""
        said = token(str(keys[0])) + b":" + _encoded(keys[1:], value) + comma
        edits.append((at + 1, at + 1, said))


def _removals(members: Sequence[_Member], gone: set[int]) -> Iterator[tuple[int, int, bytes]]:
    """Edits that take the ``gone`` members away, and as many commas."""
    tail = len(members)
    while tail - 1 in gone:
        tail -= 1
    for index in gone:
        if index < tail:
            yield members[index].start, members[index + 1].start, b""
    if tail < len(members):
        begin = members[tail - 1].end if tail else members[tail].start
        yield begin, members[-1].end, b""


def _encoded(keys: Sequence[str | int], value: Any) -> bytes:
    for key in reversed(keys):
        value = {str(key): value}
    return msgspec.json.encode(value)


def _members(body: bytes, at: int) -> Iterator[_Member]:
    """What is in the object or array that begins at ``at``."""
    is_object = body[at : at + 1] == b"{"
    at = _after_space(body, at + 1)
    index = 0
    while body[at : at + 1] not in (b"}", b"]", b""):
        start, key = at, index
        said: str | int = key
        if is_object:
            found = _KEY.match(body, at)
            if found is None:
                return
            said, at = unquoted(found[1]), found.end()
        end = end_of_value(body, at)
        yield _Member(said, start, at, end)
        index += 1
        at = _after_space(body, end)
        if body[at : at + 1] == b",":
            at = _after_space(body, at + 1)


def end_of_value(body: bytes, at: int) -> int:
    """Where the value that begins at ``at`` ends."""
    found = STRING.match(body, at)
    if found is not None:
        return found.end()
    if body[at : at + 1] not in (b"{", b"["):
        scalar = _SCALAR.match(body, at)
        return at if scalar is None else scalar.end()
    depth = 0
    while True:
        depth += 1 if body[at] in b"{[" else -1
        at += 1
        if not depth:
            return at
        at = BETWEEN_BRACKETS.match(body, at).end()  # type: ignore[union-attr]  # matches anything


def _after_space(body: bytes, at: int) -> int:
    return SPACE.match(body, at).end()  # type: ignore[union-attr]  # matches anything
