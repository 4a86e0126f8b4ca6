"""The runner as the worker of its pools: asks what configuration each should run, tells what became of it.

The worker of a pool is called like the pool. Asking locks a document for a moment, so it is done when
something about the document's rollout has changed, and often enough to show that somebody is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from django.db.models import OuterRef, Subquery

from controlplane.configs import asking, workers
from controlplane.configs.models import PoolBinding, Rollout
from controlplane.core.errors import Detail, MissingError
from controlplane.core.roles import Actor, Channel, Role
from controlplane.fleet.local.counts import Counts
from controlplane.fleet.local.wanted import WantedConfig

FOLLOWER: Final = Actor("fleet", Role.WORKER, Channel.AUTOMATION)
ASK_EVERY_S: Final = 20.0


class Following:
    """What each pool's picker should run, as it was last asked; used on the database's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: dict[str, tuple[Any, float, WantedConfig | None]] = {}
        """Pool -> what decided the answer, when it was asked for, and the answer."""

    def __call__(self, pools: Sequence[str]) -> dict[str, WantedConfig | None]:
        """Of the pools that have a configuration."""
        now = self._clock()
        found: dict[str, tuple[Any, float, WantedConfig | None]] = {}
        newest = Rollout.objects.filter(document=OuterRef("document")).order_by("-id")
        rows = PoolBinding.objects.filter(pool__in=pools).values_list(
            "pool",
            "document",
            "document__active",
            Subquery(newest.values("id")[:1]),
            Subquery(newest.values("stage")[:1]),
        )
        for pool, *state in rows:
            last = self._asked.get(pool)
            if last is not None and last[0] == state and now - last[1] < ASK_EVERY_S:
                found[pool] = last
            else:
                found[pool] = (state, now, _ask(pool))
        self._asked = found
        return {pool: answer for pool, (_, _, answer) in found.items()}


def _ask(pool: str) -> WantedConfig | None:
    try:
        found = asking.desired(FOLLOWER, pool, worker=pool)
    except MissingError:  # the document has gone in the meantime
        return None
    if found is None:
        return None
    return WantedConfig(
        document=found.document,
        revision=found.revision,
        rollout=found.rollout,
        content=found.content,
        is_guarded=found.is_guarded,
    )


def acknowledge(pool: str, config: WantedConfig, problems: Sequence[str]) -> None:
    """A pool's picker runs a revision, or refuses it because of problems, each ``path: message``."""
    details = [_detail(problem) for problem in problems]
    workers.acknowledge(FOLLOWER, pool, config.document, config.revision, details)


def observe(pool: str, config: WantedConfig, counts: Counts) -> None:
    """So many requests and errors since the pool's picker runs a revision."""
    workers.observe(FOLLOWER, pool, config.document, config.revision, counts.requests, counts.errors)


def _detail(problem: str) -> Detail:
    path, colon, message = problem.partition(": ")
    return Detail(path, message) if colon and " " not in path else Detail("", problem)
