"""What differs between two contents, value by value; plugins and profiles are compared by name.

An entry that moved within a list is not a change of every entry behind it:
``plugins[queue-scorer].parameters.cap``, ``schedulingProfiles[default].plugins[queue-scorer].weight``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from controlplane.core.documents import ABSENT, Change
from dataplane.config.document import join

_NAMES: Final = ("name", "pluginRef", "type")
"""Fields that tell entries of a list apart; the first that all have and in which all differ counts."""


def changes(before: Any, after: Any) -> list[Change]:
    """Leaves that differ, in the order of their paths; an entry that is new or gone is one change.

    Lists whose named entries stand in another order are told as such, because plugins run in that order.
    """
    return list(_differences(before, after, ""))


def _differences(before: Any, after: Any, path: str) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from _differences(before.get(key, ABSENT), after.get(key, ABSENT), join(path, key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _in_lists(before, after, path)
    elif type(before) is not type(after) or before != after:
        yield Change(path, before, after)


def _in_lists(before: list[Any], after: list[Any], path: str) -> Iterator[Change]:
    old, new = _named(before, after)
    for key in dict.fromkeys([*old, *new]):
        yield from _differences(old.get(key, ABSENT), new.get(key, ABSENT), f"{path}[{key}]")
    kept_before = [key for key in old if key in new]
    kept_after = [key for key in new if key in old]
    if kept_before != kept_after:
        yield Change(f"{path} (order)", kept_before, kept_after)


def _named(*lists: list[Any]) -> list[dict[Any, Any]]:
    """The entries of each list by name, or by place where they have no names."""
    for field in _NAMES:
        names = [[_name(entry, field) for entry in entries] for entries in lists]
        if all(None not in listed and len(set(listed)) == len(listed) for listed in names):
            return [
                dict(zip(listed, entries, strict=True)) for listed, entries in zip(names, lists, strict=True)
            ]
    return [dict(enumerate(entries)) for entries in lists]


def _name(entry: Any, field: str) -> str | None:
    """What an entry is called; a plugin without a name is called like its type."""
    if not isinstance(entry, dict):
        return None
    name = entry.get(field, entry.get("type") if field == "name" else None)
    return name if isinstance(name, str) else None
