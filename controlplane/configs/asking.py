"""Workers that ask what they should run instead of subscribing: each question says that they are there."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.utils import timezone

from controlplane.configs import workers
from controlplane.configs.models import PoolBinding
from controlplane.configs.workers import WORKER, Desired
from controlplane.core.errors import InvalidError, MissingError
from controlplane.core.roles import Action, Actor, require
from controlplane.xds import workers as registry
from controlplane.xds.models import Worker
from dataplane.config.epp_checks import KIND
from dataplane.errors import ConfigError
from dataplane.xds.messages import Node
from epp.objects.schema import check_name

SEEN_EVERY: Final = timedelta(seconds=10)
"""How often it is written down that a worker is there."""


def desired(actor: Actor, pool: str, worker: str) -> Desired | None:
    """What a worker should run for a pool; None when nothing is published for it.

    ``MissingError`` when no document configures the pool.
    """
    require(actor, Action.FOLLOW, WORKER)
    _check(worker, "worker")
    _check(pool, "pool")
    if not PoolBinding.objects.filter(pool=pool).exists():
        raise MissingError(f"no {KIND} is for the pool {pool}")
    row = Worker.objects.filter(node_id=worker, pool=pool, is_awaited=True, is_connected=True).first()
    if row is None or timezone.now() - row.seen_at >= SEEN_EVERY:
        if row is None:
            registry.arrived(Node(worker, pool, {"component": "epp"}), actor.name)
            workers.joined([worker])
        registry.present([worker])
        registry.sweep()
    return workers.desired([(worker, pool)]).get((worker, pool))


def _check(name: str, path: str) -> None:
    try:
        check_name(name, path)
    except ConfigError as error:
        raise InvalidError.of([error]) from None
