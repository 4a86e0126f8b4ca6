"""Feeds the guards of rollouts with what workers say of themselves.

A worker that runs the revision of a rollout counts requests and errors since then and publishes both every
second. Workers that the fleet runner runs are counted by it as well; the numbers are the same. Payload
processors count for each guardrail policy anew when another revision of it comes into force. What a canary of
theirs counts is kept without a guard too: how much more it blocks than others is for people to see.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from controlplane.configs import workers
from controlplane.configs.models import Rollout
from controlplane.configs.rollout import SPREADING, Counts, Outcome, Stage
from controlplane.configs.rollouts import guard_of
from controlplane.configs.subjects import POLICIES, subject_of
from controlplane.core.users import SYSTEM
from controlplane.telemetry.feed import OF_PROCESSORS, PICKERS, read
from dataplane.config.reload import revision_of
from dataplane.telemetry.summary import FIELD, PROCESSORS, STREAM, ProcessorSummary, Summary

RECENT_S: Final = 5
MAX_READ: Final = 5000

S = TypeVar("S", Summary, ProcessorSummary)


def observe(client: Any) -> int:
    """Tell every guarded rollout what its workers have counted; how many of them had something to say."""
    watched = [
        rollout
        for rollout in Rollout.objects.filter(stage__in=SPREADING).select_related("revision", "document")
        if guard_of(rollout) is not None or (subject_of(rollout.document).is_blocking and _is_canary(rollout))
    ]
    if not watched:
        return 0
    pickers, processors = _recent(client, STREAM, PICKERS), _recent(client, PROCESSORS, OF_PROCESSORS)
    told = 0
    for rollout in watched:
        document, number = rollout.document, rollout.revision.number
        counts = (
            _of_processors(rollout, processors)
            if subject_of(document).is_blocking
            else (_of_pickers(rollout, pickers))
        )
        for name in rollout.acks.filter(outcome=Outcome.APPLIED).values_list("worker", flat=True):
            found = counts.get(name)
            if found is not None:
                # What a worker says is taken as far as it makes sense.
                errors, blocked = min(found.errors, found.requests), min(found.blocked, found.requests)
                workers.observe(
                    SYSTEM, name, document.name, number, found.requests, errors, blocked, document.kind
                )
                told += 1
    return told


def _is_canary(rollout: Rollout) -> bool:
    return rollout.stage == Stage.CANARY


def _of_pickers(rollout: Rollout, said: Mapping[str, Summary]) -> dict[str, Counts]:
    """By worker, of those that run the revision."""
    revision = revision_of(rollout.revision.content.encode())
    return {
        name: Counts(summary.revision_requests, summary.revision_errors)
        for name, summary in said.items()
        if digest_in(summary.revision) == revision
    }


def _of_processors(rollout: Rollout, said: Mapping[str, ProcessorSummary]) -> dict[str, Counts]:
    """The same of a payload processor's configuration, or of a guardrail policy."""
    if rollout.document.kind == POLICIES.kind:
        wanted = (rollout.document.name, rollout.revision.number)
        return {
            name: Counts(policy.requests, policy.errors, policy.blocked)
            for name, summary in said.items()
            for policy in summary.policies
            if (policy.name, policy.revision) == wanted
        }
    revision = revision_of(rollout.revision.content.encode())
    return {
        name: Counts(summary.revision_requests, summary.revision_errors, summary.revision_blocked)
        for name, summary in said.items()
        if digest_in(summary.revision) == revision
    }


def digest_in(shown: str) -> str:
    """The digest in what a worker calls its configuration: ``DOCUMENT/NUMBER@DIGEST`` when it was sent by the
    control plane, ``DIGEST`` alone when it was read from a file.
    """
    return shown.rpartition("@")[2]


def _recent(client: Any, stream: str, decoder: msgspec.json.Decoder[S]) -> dict[str, S]:
    """The last word of every worker that has said something just now."""
    after = f"{int((time.time() - RECENT_S) * 1000)}-0"
    found: dict[str, S] = {}
    for _, fields in client.xrevrange(stream, "+", after, count=MAX_READ):
        summary = read(fields.get(FIELD, b""), decoder)
        if summary is not None:
            found.setdefault(summary.worker, summary)
    return found
