"""What differs between two contents, value by value; plugins and profiles are compared by name.

An entry that moved within a list is not a change of every entry behind it:
``plugins[queue-scorer].parameters.cap``, ``schedulingProfiles[default].plugins[queue-scorer].weight``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from controlplane.core.documents import Change, differences

_NAMES: Final = ("name", "pluginRef", "type")
"""Fields that tell entries of a list apart; the first that all have and in which all differ counts."""


def changes(before: Any, after: Any) -> list[Change]:
    """Leaves that differ, in the order of their paths, then lists whose order has changed."""
    return [
        Change(change.path.replace(".[", "["), change.before, change.after)
        for change in (*differences(_by_name(before), _by_name(after)), *_moved(before, after))
    ]


def _by_name(value: Any) -> Any:
    """The value with lists of named entries as mappings from ``[name]``."""
    if isinstance(value, dict):
        return {key: _by_name(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    names = _names(value)
    items = [_by_name(item) for item in value]
    return items if names is None else dict(zip((f"[{name}]" for name in names), items, strict=True))


def _names(entries: list[Any]) -> list[str] | None:
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        return None
    for field in _NAMES:
        named = [entry.get(field, entry.get("type") if field == "name" else None) for entry in entries]
        if all(isinstance(name, str) for name in named) and len(set(named)) == len(named):
            return named
    return None


def _moved(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """Lists whose named entries are the same in another order: plugins run in the order of the list."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() & after.keys()):
            yield from _moved(before[key], after[key], f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list):
        old, new = _names(before), _names(after)
        if old is None or new is None:
            return
        kept_before = [name for name in old if name in new]
        kept_after = [name for name in new if name in old]
        if kept_before != kept_after:
            yield Change(f"{path} (order)", kept_before, kept_after)
        entries = dict(zip(new, after, strict=True))
        for name, entry in zip(old, before, strict=True):
            if name in entries:
                yield from _moved(entry, entries[name], f"{path}[{name}]")
