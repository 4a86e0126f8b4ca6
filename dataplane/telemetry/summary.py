"""One worker's second, as it is published and read: a picker's, and a payload processor's.

Rates are of the time since the summary before; what is cumulative says so. Whoever can write to Valkey can
write anything, so everything is bounded here and judged again where it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

STREAM: Final = "pointsman:telemetry"
PROCESSORS: Final = "pointsman:telemetry:processors"
"""Of payload processors: another stream, because what they say is another thing."""
FIELD: Final = b"s"
MAX_ENTRIES: Final = 50_000
"""Summaries Valkey keeps, about: fifteen minutes of 55 workers, some 40 MB with their endpoints."""
MAX_SUMMARY_BYTES: Final = 64 << 10
MAX_ENDPOINTS: Final = 64
"""Endpoints in a summary, the busiest ones."""
MAX_POLICIES: Final = 64
"""Policies in a summary, those that came into force last."""
MAX_NAME: Final = 253

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
Number = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class EndpointLoad(msgspec.Struct, frozen=True, rename="camel"):
    """One endpoint as the worker sees it."""

    name: Name
    address: Name
    ready: bool
    running: Number = 0.0
    waiting: Number = 0.0
    kv_usage: Number = 0.0
    inflight: Count = 0
    """Requests this worker has sent there that are not over."""


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One worker's second. Durations in seconds; None = nothing happened of which there could be one."""

    worker: Name
    pool: Name
    at: Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]
    """Since the epoch."""
    interval_s: Annotated[float, msgspec.Meta(gt=0, le=3600)]
    """What the rates are of."""
    requests: Count = 0
    """In the interval: given an endpoint, or refused for a reason that is not the sender's."""
    errors: Count = 0
    """Of these: refused, failed later, or answered by the model server with an error."""
    inflight: Count = 0
    queue: Number = 0.0
    """Requests that wait in the model servers."""
    kv_usage: Number | None = None
    """Mean share of the model servers' KV caches that is in use; None when no server tells."""
    ttft_p50: Number | None = None
    """Of streamed answers that began in the interval."""
    ttft_p95: Number | None = None
    hit_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """Mean share of prompts that the chosen endpoint is believed to hold."""
    decision_p50: Number | None = None
    decision_p95: Number | None = None
    loop_lag: Number = 0.0
    """Largest delay of the event loop lately."""
    endpoints_ready: Count = 0
    endpoints_total: Count = 0
    endpoints: Annotated[Sequence[EndpointLoad], msgspec.Meta(max_length=MAX_ENDPOINTS)] = ()
    revision: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""
    """Of the running configuration."""
    revision_requests: Count = 0
    """Cumulative, since the worker runs this revision."""
    revision_errors: Count = 0


class PolicyCounts(msgspec.Struct, frozen=True, rename="camel"):
    """What a processor has counted since it has a revision of a policy in force; all cumulative."""

    name: Name
    revision: Count
    """0 = the policy comes from a file."""
    requests: Count = 0
    """All of the processor, also those that the policy is not for."""
    errors: Count = 0
    blocked: Count = 0
    """Exchanges that a rule of this policy has ended."""


class ProcessorSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A payload processor's second. Durations in seconds; None = nothing of which there could be one."""

    worker: Name
    processor: Name
    """The name that all its replicas have."""
    at: Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]
    """Since the epoch."""
    interval_s: Annotated[float, msgspec.Meta(gt=0, le=3600)]
    """What the rates are of."""
    version: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""
    """Of the software."""
    ready: bool = True
    requests: Count = 0
    """In the interval: sent on, or answered here with an error."""
    errors: Count = 0
    """Of these: answered with a status of 500 or more, by the processor or by whoever it sent them to."""
    refused: Count = 0
    """Of these: answered by the processor with an error, of whatever status."""
    blocked: Count = 0
    """Of these: ended by a guardrail, be it at the request, the answer or the stream."""
    inflight: Count = 0
    latency_p50: Number | None = None
    """From the complete request to its decision."""
    latency_p95: Number | None = None
    loop_lag: Number = 0.0
    """Largest delay of the event loop lately."""
    revision: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""
    """Of the running configuration."""
    revision_requests: Count = 0
    """Cumulative, since the processor runs this revision."""
    revision_errors: Count = 0
    revision_blocked: Count = 0
    policies_version: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""
    """Of the set of policies in force, as the control plane calls it; empty = they come from files."""
    policies_total: Count = 0
    policies: Annotated[Sequence[PolicyCounts], msgspec.Meta(max_length=MAX_POLICIES)] = ()


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """The value below which ``share`` of what a histogram has counted lies, linear within a bucket.

    ``counts`` are per bucket, with one more than there are bounds; what lies beyond the last bound counts
    as that bound. None when nothing was counted.
    """
    total = sum(counts)
    if total == 0:
        return None
    rank, below, lower = share * total, 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return lower + (bound - lower) * max(0.0, rank - below) / count
        below += count
        lower = bound
    return float(bounds[-1])
