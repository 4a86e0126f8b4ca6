"""Rollouts that a guard watches: whose requests and errors are wanted, and for which revision."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from controlplane.configs.models import PoolBinding
from controlplane.configs.rollout import SPREADING


class Guarded(msgspec.Struct, frozen=True):
    """A revision on its way, in one rollout."""

    document: str
    revision: int
    rollout: int

    def is_running(self, shown: str) -> bool:
        """Whether a picker that names its configuration so, ``DOCUMENT/NUMBER@DIGEST``, runs it."""
        return shown.rpartition("@")[0] == f"{self.document}/{self.revision}"


def guarded_pools(pools: Collection[str]) -> dict[str, Guarded]:
    """Of these pools those whose configuration is on its way under a guard. One query."""
    rollout = "document__rollouts"
    rows = PoolBinding.objects.filter(
        pool__in=pools,
        document__rollouts__stage__in=SPREADING,
        document__rollouts__max_error_share__isnull=False,
    )
    found = rows.values_list("pool", "document__name", f"{rollout}__revision__number", f"{rollout}__id")
    return {pool: Guarded(*guarded) for pool, *guarded in found}
