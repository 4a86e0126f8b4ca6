"""The kinds there are, by name and by address; each app adds its own when Django has loaded it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from controlplane.core.resources import ResourceService

Service: TypeAlias = "ResourceService[Any]"


class Kinds:
    """All kinds, in the order in which documents of them are applied: what is referred to comes first."""

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}

    def add(self, service: Service) -> None:
        """Make a kind known."""
        if service.kind in self._services:
            raise ValueError(f"kind {service.kind} is known already")
        self._services[service.kind] = service

    def all(self) -> list[Service]:
        """Every kind's service, in order."""
        return list(self._services.values())

    def of(self, kind: object) -> Service | None:
        """The service of a kind, None when there is none."""
        return self._services.get(kind) if isinstance(kind, str) else None


KINDS = Kinds()
