"""What should run: the pools of the ``local`` driver with everything their pickers are to know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from controlplane.core.kinds import KINDS
from controlplane.core.resources import POOL_REFERENCE, Document, ResourceService
from controlplane.core.roles import Actor, Channel, Role
from controlplane.fleet.models import InferencePool
from controlplane.fleet.services import EndpointListService, PoolService
from controlplane.fleet.specs import Driver
from epp.objects.schema import VERSIONS

ACTOR: Final = Actor("fleet", Role.VIEWER, Channel.AUTOMATION)
LOCAL: Final = "local"

MAX_POOLS: Final = 500
"""Pools that one runner runs."""


class WantedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The revision of a configuration that a pool's picker should run."""

    document: str
    revision: int
    rollout: int | None
    """The rollout that brings it; each one wants to hear what became of it."""
    content: str
    is_guarded: bool = False
    """Whether the control plane wants to hear of requests and errors while it runs."""


class WantedPool(msgspec.Struct, frozen=True, kw_only=True):
    """One pool."""

    name: str
    driver: Driver
    resolve: dict[str, Any] = {}
    endpoints: list[Any] = []
    """Entries of an endpoints file."""
    objects: list[Any] = []
    """Documents of objectives and rewrites."""
    config: WantedConfig | None = None
    """None = the picker's built-in default."""


class Wanted(msgspec.Struct, frozen=True):
    """All of it."""

    pools: list[WantedPool]
    beyond: int = 0
    """Pools there is no room for."""


Configs = Callable[[Sequence[str]], Mapping[str, WantedConfig | None]]
"""Pools -> the configuration of each that has one (``controlplane.fleet.local.following``)."""


def read_wanted(configs_of: Configs) -> Wanted:
    """What the database says; a few queries, however many pools there are."""
    found = PoolService().rows(ACTOR).filter(driver=LOCAL).order_by("name")
    rows = list(found[:MAX_POOLS])
    beyond = found.count() - len(rows) if len(rows) == MAX_POOLS else 0
    names = [row.name for row in rows]
    resolves: dict[str, dict[str, Any]] = {}
    endpoints: dict[str, list[Any]] = defaultdict(list)
    for listed in EndpointListService().rows(ACTOR).filter(pool__in=names).order_by("name"):
        endpoints[listed.pool] += listed.endpoints
        if listed.resolve:
            resolves.setdefault(listed.pool, listed.resolve)
    objects = _objects(names)
    configs = configs_of(names)
    pools = [
        WantedPool(
            name=row.name,
            driver=_driver(row),
            resolve=resolves.get(row.name, {}),
            endpoints=endpoints[row.name],
            objects=objects[row.name],
            config=configs.get(row.name),
        )
        for row in rows
    ]
    return Wanted(pools, beyond)


def _driver(row: InferencePool) -> Driver:
    return msgspec.convert(row.spec["driver"], Driver)


def _objects(names: list[str]) -> dict[str, list[Document]]:
    """Pool -> the documents its picker reads, of every kind that pickers know and that belongs to a pool."""
    found: dict[str, list[Document]] = defaultdict(list)
    for service in KINDS.all():
        if service.kind in VERSIONS and POOL_REFERENCE in service.references:
            for row in service.rows(ACTOR).filter(pool__in=names).order_by("name"):
                found[row.pool].append(_object(service, row))
    return found


def _object(service: ResourceService[Any], row: Any) -> Document:
    """The document with its age, by which pickers order rewrites, and without what does not concern them."""
    metadata = {"name": row.name, "creationTimestamp": row.created_at.isoformat()}
    return service.document(row) | {"metadata": metadata}
