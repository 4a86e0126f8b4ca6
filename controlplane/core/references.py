"""Objects that name objects of another kind: told when there is none, and kept from dangling later.

Kinds may be applied in any order, so a name that nobody has yet is a warning, never a refusal. A deletion
that would leave such a name behind is refused, with whoever has it.
"""

from __future__ import annotations

from typing import Any, Final

from controlplane.core.errors import ConflictError, Detail
from controlplane.core.kinds import KINDS, Kinds, Service

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
            if not self._exists(reference.kind, name := getattr(row, reference.column))
        ]

    def _exists(self, kind: str, name: str) -> bool:
        target = self._kinds.of(kind)
        if target is None:
            return True
        if (kind, name) not in self._found:
            self._found[kind, name] = target.model.objects.filter(name=name).exists()
        return self._found[kind, name]


def require_unnamed(kind: str, name: str, kinds: Kinds = KINDS) -> None:
    """``ConflictError`` while objects of other kinds name this one."""
    for service in kinds.all():
        for reference in service.references:
            if reference.kind != kind:
                continue
            named = service.model.objects.filter(**{reference.column: name}).order_by("name")
            names = list(named.values_list("name", flat=True)[: MAX_NAMED + 1])
            if names:
                listed = ", ".join(names[:MAX_NAMED]) + (" and more" if len(names) > MAX_NAMED else "")
                raise ConflictError(f"{kind} {name} is named by {service.kind} {listed}; delete these first")
