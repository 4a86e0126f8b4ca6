"""What should run: the pools of the ``local`` driver, with their endpoints.

Configuration and objects are none of it: pickers are sent these by the control plane.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import msgspec

from controlplane.configs.guarding import Guarded, guarded_pools
from controlplane.core.roles import Actor, Channel, Role
from controlplane.fleet.models import InferencePool
from controlplane.fleet.services import EndpointListService, PoolService
from controlplane.fleet.specs import Driver

ACTOR: Final = Actor("fleet", Role.VIEWER, Channel.AUTOMATION)
LOCAL: Final = "local"

MAX_POOLS: Final = 500
"""Pools that one runner runs."""


class WantedPool(msgspec.Struct, frozen=True, kw_only=True):
    """One pool."""

    name: str
    driver: Driver
    resolve: dict[str, Any] = {}
    endpoints: list[Any] = []
    """Entries of an endpoints file."""
    guarded: Guarded | None = None
    """The revision with which the picker's requests and errors are wanted."""


class Wanted(msgspec.Struct, frozen=True):
    """All of it."""

    pools: list[WantedPool]
    beyond: int = 0
    """Pools there is no room for."""


def read_wanted() -> Wanted:
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
    guarded = guarded_pools(names)
    pools = [
        WantedPool(
            name=row.name,
            driver=_driver(row),
            resolve=resolves.get(row.name, {}),
            endpoints=endpoints[row.name],
            guarded=guarded.get(row.name),
        )
        for row in rows
    ]
    return Wanted(pools, beyond)


def _driver(row: InferencePool) -> Driver:
    return msgspec.convert(row.spec["driver"], Driver)
