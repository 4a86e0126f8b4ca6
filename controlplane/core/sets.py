"""The documents of a set, each with its place, out of the lists in which they come.

A file has one document, several, or a list of them; ``kubectl get`` prints a ``List``, and a Kubernetes
server answers with ``InferencePoolList`` and the like; an export is ``{"documents": [...]}``. All of these
may stand beside and in one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from dataplane.errors import ConfigError, did_you_mean

LIST: Final = "List"
LIST_VERSION: Final = "v1"
_FIELDS: Final = ("apiVersion", "kind", "metadata", "items")


class Placed(NamedTuple):
    """A document, or what stands where one should."""

    place: str
    """``documents[2]``, ``documents[2].items[0]``."""
    document: Any


def placed(documents: Sequence[Any], kinds: Sequence[str], problems: list[ConfigError]) -> Iterator[Placed]:
    """Every document in order; lists that are none are noted in ``problems``."""
    left = [Placed(f"documents[{index}]", each) for index, each in reversed(list(enumerate(documents)))]
    while left:
        place, found = left.pop()
        members: Any = None
        if isinstance(found, list):
            members = found
        elif isinstance(found, dict) and set(found) == {"documents"}:
            place, members = f"{place}.documents", found["documents"]
        elif isinstance(found, dict) and (kind := _kind_of_list(found, kinds)) is not None:
            members = _items(found, kind, place, problems)
            place = f"{place}.items"
        else:
            yield Placed(place, found)
            continue
        if isinstance(members, list):
            left += [Placed(f"{place}[{index}]", each) for index, each in reversed(list(enumerate(members)))]
        else:
            problems.append(ConfigError("must be a list of documents", path=place))


def _kind_of_list(found: dict[str, Any], kinds: Sequence[str]) -> str | None:
    """Empty: documents of all kinds; else the only kind. None: it is no list."""
    kind = found.get("kind")
    if kind == LIST:
        return ""
    if isinstance(kind, str) and kind.endswith(LIST) and kind not in kinds:
        only = kind.removesuffix(LIST)
        return only if only in kinds else None
    return None


def _items(found: dict[str, Any], kind: str, place: str, problems: list[ConfigError]) -> Any:
    """The items of a list; those of one kind may leave out what the list says."""
    problems.extend(
        ConfigError(f"is no field of a list{did_you_mean(str(field), _FIELDS)}", path=f"{place}.{field}")
        for field in found
        if field not in _FIELDS
    )
    items = found.get("items")
    if not kind:
        if found.get("apiVersion") != LIST_VERSION:
            problems.append(ConfigError(f"must be {LIST_VERSION}", path=f"{place}.apiVersion"))
        return items
    if not isinstance(items, list):
        return items
    said = {"apiVersion": found.get("apiVersion"), "kind": kind}
    return [said | item if isinstance(item, dict) else item for item in items]
