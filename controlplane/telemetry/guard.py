"""Feeds the guards of rollouts with what workers say of themselves.

A worker that runs the revision of a rollout counts requests and errors since then and publishes both every
second. Workers that the fleet runner runs are counted by it as well; the numbers are the same.
"""

from __future__ import annotations

import time
from typing import Any, Final

from controlplane.configs import workers
from controlplane.configs.models import Rollout
from controlplane.configs.rollout import SPREADING, Outcome
from controlplane.configs.rollouts import guard_of
from controlplane.core.users import SYSTEM
from controlplane.telemetry.feed import read
from dataplane.config.reload import revision_of
from dataplane.telemetry.summary import FIELD, STREAM, Summary

RECENT_S: Final = 5
MAX_READ: Final = 5000


def observe(client: Any) -> int:
    """Tell every guarded rollout what its workers have counted; how many of them had something to say."""
    guarded = [
        rollout
        for rollout in Rollout.objects.filter(stage__in=SPREADING).select_related("revision", "document")
        if guard_of(rollout) is not None
    ]
    if not guarded:
        return 0
    said = _recent(client)
    told = 0
    for rollout in guarded:
        revision = revision_of(rollout.revision.content.encode())
        for name in rollout.acks.filter(outcome=Outcome.APPLIED).values_list("worker", flat=True):
            summary = said.get(name)
            if summary is not None and digest_in(summary.revision) == revision:
                workers.observe(
                    SYSTEM,
                    name,
                    rollout.document.name,
                    rollout.revision.number,
                    summary.revision_requests,
                    min(summary.revision_errors, summary.revision_requests),
                )
                told += 1
    return told


def digest_in(shown: str) -> str:
    """The digest in what a worker calls its configuration: ``DOCUMENT/NUMBER@DIGEST`` when it was sent by the
    control plane, ``DIGEST`` alone when it was read from a file.
    """
    return shown.rpartition("@")[2]


def _recent(client: Any) -> dict[str, Summary]:
    """The last word of every worker that has said something just now."""
    after = f"{int((time.time() - RECENT_S) * 1000)}-0"
    found: dict[str, Summary] = {}
    for _, fields in client.xrevrange(STREAM, "+", after, count=MAX_READ):
        summary = read(fields.get(FIELD, b""))
        if summary is not None:
            found.setdefault(summary.worker, summary)
    return found
