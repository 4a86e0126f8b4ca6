"""Objects that name objects of another kind: told when there is none, and kept from dangling later.

Kinds may be applied in any order, so a name that nobody has yet is a warning, unless the object means nothing
without it: then it is refused. A deletion that would leave such a name behind is refused, with whoever has
it. What is named by a required reference is locked until the change is done, so that it cannot go meanwhile.
"""

from __future__ import annotations

from typing import Any, Final

from controlplane.core.errors import ConflictError, Detail, InvalidError
from controlplane.core.kinds import KINDS, Kinds, Service
from dataplane.errors import ConfigError

MAX_NAMED: Final = 5
"""Objects that a refusal names."""


class Looked:
    """Which objects there are, asked once each."""

    def __init__(self, kinds: Kinds = KINDS) -> None:
        self._kinds = kinds
        self._found: dict[tuple[str, str], bool] = {}

    def missing(self, service: Service, row: Any) -> list[Detail]:
        """What an object names and nobody is; paths begin with ``spec``."""
        return [
            Detail(reference.path, f"there is no {reference.kind} {name} yet; until then this has no effect")
            for reference in service.references
            for name in names_in(service, row, reference.column)
            if not self._exists(reference.kind, name)
        ]

    def _exists(self, kind: str, name: str) -> bool:
        target = self._kinds.of(kind)
        if target is None:
            return True
        if (kind, name) not in self._found:
            self._found[kind, name] = target.model.objects.filter(name=name).exists()
        return self._found[kind, name]


def names_in(service: Service, row: Any, column: str) -> list[str]:
    """The names that a row's column holds, or a look-up in rows of another table."""
    if "__" in column:
        found = service.model.objects.filter(pk=row.pk).order_by(column)
        return [name for name in found.values_list(column, flat=True).distinct() if name]
    name: str = getattr(row, column)
    return [name] if name else []


def require_named(service: Service, row: Any, kinds: Kinds = KINDS) -> None:
    """``InvalidError`` unless all that an object cannot do without is there. Call it inside a transaction."""
    problems = []
    for reference in service.references:
        target = kinds.of(reference.kind)
        if not reference.required or target is None:
            continue
        names = names_in(service, row, reference.column)
        rows = target.model.objects.select_for_update().filter(name__in=names).order_by("name")
        there = set(rows.values_list("name", flat=True))
        problems += [
            ConfigError(
                f"there is no {reference.kind} {name}; make it first, or apply both together",
                path=reference.path,
            )
            for name in names
            if name not in there
        ]
    if problems:
        raise InvalidError.of(problems)


def require_unnamed(kind: str, name: str, kinds: Kinds = KINDS) -> None:
    """``ConflictError`` while objects of other kinds name this one."""
    for service in kinds.all():
        for reference in service.references:
            if reference.kind != kind:
                continue
            named = service.model.objects.filter(**{reference.column: name}).order_by("name").distinct()
            names = list(named.values_list("name", flat=True)[: MAX_NAMED + 1])
            if names:
                listed = ", ".join(names[:MAX_NAMED]) + (" and more" if len(names) > MAX_NAMED else "")
                raise ConflictError(f"{kind} {name} is named by {service.kind} {listed}; delete these first")
